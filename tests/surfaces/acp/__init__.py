"""The ACP server, met by the clients of others."""
