"""A process that does nothing until its input ends."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.stdin.read()
