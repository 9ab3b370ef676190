"""The calls that the one stream holds, read anew and in the plainest way, as of any position; for their checker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from txobserver.events import Configure, Event


class ReferenceCall(NamedTuple):
    """``key``: operation and name; ``at``: its sequence; ``kept``: how long the history is from here on."""

    tnx_id: int
    at: int
    key: tuple[str, str]
    id: bytes
    value: bytes
    members: list[str]
    initiator: str
    kept: int


@dataclass
class CallReference:
    """``controls``: (what, at, member, tnx_id), where a reset concerns the calls before its own number."""

    calls: list[ReferenceCall] = field(default_factory=list)
    controls: list[tuple[str, int, str, int]] = field(default_factory=list)
    looked: int = 0

    def take(self, canonical: list[tuple[int, Event]]) -> list[ReferenceCall]:
        """What the stream has come to since the last look; the new calls."""
        before = len(self.calls)
        for at in range(self.looked, len(canonical)):
            event = canonical[at][1]
            if isinstance(event, Configure) and event.operation.startswith("call."):
                self._step(at + 1, event)
        self.looked = len(canonical)
        return self.calls[before:]

    def _step(self, at: int, event: Configure) -> None:
        found: list[Any] = msgspec.msgpack.decode(event.arguments)
        if event.operation == "call.run":
            call_id, _, name, value, initiator, _, members, kept = found
            key = event.name, name
            self.calls.append(ReferenceCall(event.config_id, at, key, call_id, value, members, initiator, kept))
        else:
            _, member, tnx_id = found
            self.controls.append((event.operation, at, member, tnx_id or event.config_id))

    def by_id(self, call_id: bytes) -> ReferenceCall | None:
        """The call with this id."""
        return next((each for each in self.calls if each.id == call_id), None)

    def excused(self, member: str, call: ReferenceCall, applied: int) -> bool:
        """Whether this member need not run the call, by what stands in the stream up to there."""
        for what, at, whom, tnx_id in self.controls:
            if at > applied or (what != "call.reset" and whom != member):
                continue
            if call.tnx_id == tnx_id if what == "call.skip" else call.tnx_id <= tnx_id:
                return True
        seen = [each for each in self.calls if each.at <= applied]
        later = any(each.key == call.key and each.tnx_id > call.tnx_id for each in seen)
        behind = sum(each.tnx_id > call.tnx_id for each in seen)
        return later and behind >= seen[-1].kept
