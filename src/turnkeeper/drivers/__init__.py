"""Drivers: each one makes some kind of agent an `Agent` of `turnkeeper.ports`."""
