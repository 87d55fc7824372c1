"""Drivers: each makes something that can take a turn into an `Agent` of `ports`.

They know `ports`, the core, wires and custody; never the runtime. Invariant: a driver reports what
it saw, and decides nothing about how a run ends.
"""
