"""One part at a time."""
