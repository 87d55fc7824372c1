"""The tests of Turnkeeper, by the level at which a behaviour could break."""
