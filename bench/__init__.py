"""Benchmarks of what Turnkeeper promises about cost; `make bench` runs them all."""
