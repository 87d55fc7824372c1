"""The worker as a real process on plain pipes."""
