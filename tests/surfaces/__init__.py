"""Every surface, with the clients that its ecosystem has."""
