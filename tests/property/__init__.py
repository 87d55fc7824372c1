"""What holds for all orders, all prefixes and all sequences."""
