"""`python -m bench`: everything that is promised about cost, measured here and now."""

from __future__ import annotations

import sys

from bench import supervise

if __name__ == "__main__":
    sys.exit(0 if supervise.main() else 1)
