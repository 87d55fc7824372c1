"""Tests of the source itself: directions, purity, size, documents and style."""
