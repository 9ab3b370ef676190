"""The primary's side of all attachments, whose neighbours the test plays: keeper, replica, primary, copies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ha.effects import Send
from ha.messages.attaching import Join
from ha.primary.attachments import Attachments
from ha.primary.backups import Backups
from ha.primary.fanout import Star
from ha.settings import Settings
from txobserver.access import Access
from txobserver.actions import SHIPPED
from txobserver.calls import KeptCalls
from txobserver.events import TxOpen
from txobserver.frames import encode_frame
from txobserver.ids import Member, Position

A, B, C = (Member(name, f"{name}1") for name in "abc")
HISTORY = [Position(1, 1), Position(3, 5)]
TAIL = Position(3, 10)
SETTINGS = Settings(prepare_timeout=3.0, backup_timeout=5.0, link_down_grace=0.5, heartbeat_every=1.0, small_lag=4)
FRAMES = [encode_frame(3, sequence, [TxOpen(sequence)], 0) for sequence in range(5, 11)]


class Copy:
    """Stands for a copy of the queues; ``heard`` is what it is told."""

    def __init__(self, *words: Any) -> None:
        self.words = words
        self.ended_at: int | None = None
        self.heard: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.heard.append((name, *words))


class Keeper:
    """The ready set as the test has it, and what is asked of its keeper. Who is ready counts."""

    def __init__(self, *ready: Member) -> None:
        self.ready = set(ready)
        self.leaving: set[Member] = set()
        self.asked: list[Any] = []
        self.record = SimpleNamespace(ready=(A, *ready))
        self.stranger: str | None = None

    def counted(self) -> set[Member]:
        return self.ready | self.leaving

    def is_ready(self, member: Member) -> bool:
        return member in self.ready

    def add(self, member: Member, now: float) -> None:
        self.asked.append(("add", member, now))

    def remove(self, member: Member, now: float) -> None:
        self.asked.append(("remove", member, now))

    def forget_add(self, member: Member) -> None:
        self.asked.append(("forget", member))

    def refuses(self, member: Member) -> str | None:
        return self.stranger


class Side:
    """Primary a in generation 3, whose stream ends at 10 and is durable, and committed up to 4."""

    def __init__(self, *ready: Member, linked: str = "bc") -> None:
        self.keeper = Keeper(*ready)
        self.cancelled: list[Any] = []
        self.primary: Any = SimpleNamespace(
            name="a", generation=3, point=SimpleNamespace(sequence=4, serving=True),
            decisions=SimpleNamespace(cancel=lambda *words: self.cancelled.append(words)),
        )  # fmt: skip
        contents = SimpleNamespace(access=Access(), calls=KeptCalls())
        self.replica: Any = SimpleNamespace(
            history=HISTORY, tail=TAIL, durable=10, buffers={}, begun=10, contents=contents, actions=SHIPPED
        )
        self.effects: list[Any] = []
        linking: Any = set(linked)
        keeper: Any = self.keeper
        self.now = 100.0
        primary: Any = self.primary
        replica: Any = self.replica
        self.attachments = Attachments("a", 3, replica, keeper, self.effects.append, self.now)
        self.fanout = Star(self.attachments, replica, SETTINGS, self.effects.append)
        for frame in FRAMES:
            self.fanout.take(frame)
        following = (self.attachments, self.fanout, replica, keeper, SETTINGS)
        self.ours = Backups(primary, *following, linking, self.effects.append, self.now)

    def tick(self, until: float) -> None:
        """Time passes in steps that count whole."""
        while self.now < until:
            self.now = min(self.now + SETTINGS.longest_counted / 2, until)
            self.ours.tick(self.now)

    def said(self) -> list[tuple[str, Any]]:
        """To whom what was sent since the last call."""
        found = [(each.peer, each.message) for each in self.effects if isinstance(each, Send)]
        self.effects.clear()
        return found

    def asked(self) -> list[Any]:
        found, self.keeper.asked = self.keeper.asked, []
        return found

    def join(
        self, member: Member = B, tail: int = 10, now: float = 100.0, generation: int = 3, **other: Any
    ) -> list[tuple[str, Any]]:
        """One whose log is ours up to ``tail``, unless told otherwise."""
        words: dict[str, Any] = {"history": HISTORY, "applied": min(tail, 7), "resyncing": False} | other
        self.ours.take(member.node, Join(3, 71, member, tail=Position(generation, tail), **words), 1, now)
        return self.said()

    def take(self, message: Any, node: str = "b", now: float = 101.0) -> list[tuple[str, Any]]:
        self.ours.take(node, message, 1, now)
        return self.said()
