"""How many cases a test generates: its own number in ``make test``, ``EXAMPLES`` of them in ``make fuzz``."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

EXAMPLES = int(os.environ.get("TXHA_EXAMPLES", "0"))
"""0 stands for each test's own number."""


def examples(count: int, **more: Any) -> settings:
    """Settings for a test that takes ``count`` cases in ``make test``."""
    return settings(max_examples=EXAMPLES or count, **more)
