"""The core, rule by rule."""
