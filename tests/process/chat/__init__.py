"""Model APIs as agents, on real sockets: the scripted model on loopback, and the real runtime."""
