"""Behaviours that only real processes and real pipes can break."""
