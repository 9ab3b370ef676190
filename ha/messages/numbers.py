"""What the numbers in messages may be. Anything else is refused when it is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A generation, session, sequence or offset."""

QueueNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""As much as the key of an entry in the store can hold."""
