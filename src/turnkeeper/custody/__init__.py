"""Custody of agents' processes: spawn, spool, feed, watch, and end the whole tree.

`client` and `hold` are the server's side. `nursery`, `keeper` and what they import run in processes
of their own with almost nothing loaded; so this package itself must import nothing.
"""
