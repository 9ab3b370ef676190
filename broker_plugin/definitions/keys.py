"""Objects of JSON whose keys stand once: of two values under one key the first would be lost in silence."""

from __future__ import annotations

import json
from typing import Any


class KeyTwice(ValueError):
    """A key stands twice in one object."""


def checked_json(text: str | bytes) -> Any:
    """What is written there. Raises ValueError, RecursionError, and KeyTwice."""
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyTwice(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found
