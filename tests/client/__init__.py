"""The client, against the real gateway, over a network that breaks."""
