"""The worker's parts and its codec, without a process."""
