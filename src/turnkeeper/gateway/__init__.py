"""The gateway: HTTP, SSE and WebSocket in front of the dispatcher.

It knows the runtime, the ports and the shapes of `turnkeeper.api`, never a driver or a store.
Invariant: it keeps nothing of its own that a restart could lose; what it says is in a log.
"""
