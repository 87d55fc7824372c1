"""Properties that must hold for whatever hypothesis can think of."""
