"""What all messages between a node and its host broker are made of."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Number = Annotated[int, msgspec.Meta(ge=0)]
Pairs = list[tuple[Number, Number]]
"""(offset, replication id) of messages in a queue"""


class HostMessage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Every message is an array that begins with its kind."""
