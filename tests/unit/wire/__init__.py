"""Codecs, against what real programs wrote and took."""
