"""The scripted model on loopback, as clients meet it."""
