"""Agents for the benches: programs that speak a protocol and say as much as they are asked to."""
