"""Behaviours of one part, without processes or real time."""
