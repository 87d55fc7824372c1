"""The runtime on fakes of its ports, in virtual time."""
