"""Which release of txha this is: what brokers tell their clients of themselves, and nodes their operators."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.2.0.dev0"
"""As ``pyproject.toml`` has it. ``packaging/releases.toml`` names the releases before it."""
