"""Custody, on real processes: real pipes, real signals, real deaths."""
