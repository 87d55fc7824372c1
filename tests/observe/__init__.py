"""What can be seen of a running Turnkeeper, and that looking harms nothing."""
