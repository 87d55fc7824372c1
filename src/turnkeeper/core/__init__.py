"""The pure core: it decides, and does nothing.

Given what was observed and what time it is, it says which facts are now true (events) and what
has to be done about them (effects). It must not know clocks, files, processes, sockets, threads,
event loops, randomness or loggers. Invariant: the same signals at the same times give the same
events, and `fold` of those events gives the same state.
"""
