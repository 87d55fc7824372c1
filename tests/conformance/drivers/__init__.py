"""One conformance suite for every driver: the same scenarios, on scripted and on real programs."""
