"""Remote agents, on real sockets: a scripted A2A server on loopback, and the real runtime."""
