"""Runs that start runs: real servers, real worker processes, real kills."""
