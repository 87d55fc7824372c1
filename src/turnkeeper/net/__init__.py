"""Connections over the network that cannot hang: one HTTP client for drivers and for our own."""
