"""The real agent programs: how they are installed, pointed to the scripted model, and spoken to."""
