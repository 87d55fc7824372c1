"""Stores: implementations of `turnkeeper.ports.EventStore`."""
