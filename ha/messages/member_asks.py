"""Changes of the cluster's members that an operator asks for at a node that is not the primary.

Only nodes that name the feature ``members`` are sent any of these.
"""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number


class MemberAsk(msgspec.Struct, array_like=True, tag=71):
    """Change the members. ``number`` names the request; the node that asks does not give it to another one, nor does a
    later process of it. ``kind``, ``name``, ``host`` and ``port`` are those of a ``MemberChange``."""

    generation: Number
    number: Number
    kind: str
    name: str
    host: str
    port: Number


class MemberTold(msgspec.Struct, array_like=True, tag=72):
    """The change stands in the record, or does not, for this reason."""

    generation: Number
    number: Number
    error: str | None
