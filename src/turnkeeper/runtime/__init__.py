"""The runtime: the dull shell around the core. It feeds signals, appends events, does effects.

It knows ports and the core, never a driver, a store or a wire. Invariant: append first, effects
after; one writer for each session's log.
"""
