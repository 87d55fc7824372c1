"""Tests with real processes: handshakes, no sleeps; whatever a test starts, it ends."""
