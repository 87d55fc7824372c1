"""The parts of custody that need no process."""
