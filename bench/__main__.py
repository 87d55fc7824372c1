"""`python -m bench`: everything that is promised about cost, measured here and now."""

from __future__ import annotations

import sys

from bench import custody, supervise, wire

if __name__ == "__main__":
    held = [supervise.main(), wire.main(), custody.main()]
    sys.exit(0 if all(held) else 1)
