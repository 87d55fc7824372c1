"""Public help for tests: virtual time, the simulator, the scripted agent, the loopback model."""
