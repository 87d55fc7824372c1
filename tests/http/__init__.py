"""The HTTP client on real sockets, and in network namespaces behind a NAT."""
