"""What every event store keeps. A new store is added to `kit.KITS` and has to pass all of it."""
