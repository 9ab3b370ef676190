"""Who has changed what: administrative steps that say whose they are, and the history of them that every node keeps.

A step that an operator asks for is wrapped in one of ``AUDITED``: it carries the user, the address and the node where
it was asked for. It is numbered, judged and refused as the step within it would be. What was there before and what is
there after it is kept as text, in which no secret and no hash of one ever stands.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from txobserver.events import Configure

AUDITED: Final = "access.audited"
LONGEST_ORIGIN: Final = 512
"""Bytes of the user, of the address and of the node that a change came from."""
LONGEST_SHOWN: Final = 1024
"""Characters of what is kept of a value, before or after; the rest is cut off."""
MOST_CHANGES: Final = 10_000
"""That the history of changes may hold: all of them stand in each checkpoint."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Origin(NamedTuple):
    """Whose change it is. ``user``: "" for an operator at the machine itself; ``node``: where it was asked for."""

    user: str
    address: str
    node: str
    created_ms: int


class Audited(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``AUDITED``: the step within. ``kept``: how many changes the history holds from here on."""

    operation: str
    arguments: bytes
    user: str
    address: str
    node: str
    created_ms: int
    kept: int


class KeptChange(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A change that is remembered. ``before``, ``after``: what was and is in force, as JSON; "" for nothing."""

    tnx_id: int
    operation: str
    name: str
    user: str
    address: str
    node: str
    created_ms: int
    before: str
    after: str
    refusal: str


def audited_step(step: Configure, origin: Origin, kept: int) -> Configure:
    """The step, as a change of this origin."""
    user, address, node = (_cut(each) for each in origin[:3])
    whose = Audited(step.operation, step.arguments, user, address, node, origin.created_ms, kept)
    return Configure(0, AUDITED, step.name, _encode(whose))


def whose(step: Configure) -> Audited:
    """What a step of ``AUDITED`` carries. Raises ValueError."""
    return msgspec.msgpack.decode(step.arguments, type=Audited)


def plain_step(step: Configure) -> Configure:
    """The step itself, whether or not it says whose it is."""
    if step.operation != AUDITED:
        return step
    within = whose(step)
    return Configure(step.config_id, within.operation, step.name, within.arguments)


def check_audited(step: Configure) -> Configure:
    """The step within, which is to be checked as well. Raises ValueError."""
    found = whose(step)
    if (
        max(len(each.encode("utf-8", "surrogatepass")) for each in (found.user, found.address, found.node))
        > LONGEST_ORIGIN
    ):
        raise ValueError(f"user, address and node take at most {LONGEST_ORIGIN} bytes each")
    if not 1 <= found.kept <= MOST_CHANGES:
        raise ValueError(f"a history of {found.kept} changes")
    if found.created_ms < 0:
        raise ValueError("it was made before 1970")
    return plain_step(step)


def kept_change(step: Configure, before: str, after: str, refusal: str) -> KeptChange:
    """What is remembered of a step of ``AUDITED`` that has been applied."""
    of = whose(step)
    shown = (before[:LONGEST_SHOWN], after[:LONGEST_SHOWN])
    return KeptChange(
        step.config_id, of.operation, step.name, of.user, of.address, of.node, of.created_ms, *shown, refusal
    )


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:LONGEST_ORIGIN].decode("utf-8", "ignore")
