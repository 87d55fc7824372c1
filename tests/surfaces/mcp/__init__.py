"""MCP, read by its own client."""
