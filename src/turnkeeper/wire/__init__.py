"""Sans-IO codecs: bytes to signals, intents to bytes. No sockets, no processes, no clock."""
