"""What a node says to the process of its HTTP door after the first line: that its certificates have changed."""

from __future__ import annotations

from typing import Final

READ: Final = b"r"
"""The node has read its files of TLS again: the door does the same."""
UNDO: Final = b"u"
"""The node has gone back to what was in force before that."""
