"""The kill campaign: a real server under mixed work, killed again and again, and judged."""
