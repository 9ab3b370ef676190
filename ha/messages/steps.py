"""Steps of configuration that an operator asks for at a node that is not the primary.

Only nodes that name the feature ``users`` are sent any of these.
"""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number
from txobserver.ids import Position

NOT_APPENDED = Position(0, 0)
"""Where a step stands that stands nowhere"""


class StepAsk(msgspec.Struct, array_like=True, tag=51):
    """Append this step. ``number`` names the request; the node that asks does not give it to another one,
    nor does a later process of it."""

    generation: Number
    number: Number
    operation: str
    name: str
    arguments: bytes


class StepTold(msgspec.Struct, array_like=True, tag=52):
    """The step has passed the commit point and was carried out, or was not, for this reason.

    ``applied``: what the primary has applied by then, the step as well."""

    generation: Number
    number: Number
    error: str | None
    applied: Position = NOT_APPENDED
