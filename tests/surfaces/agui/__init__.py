"""The AG-UI stream, read by the models and the validator of others."""
