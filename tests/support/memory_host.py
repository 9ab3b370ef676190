"""A broker in a few lines: it keeps what it was told, so tests can ask what a client could have seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txobserver.configuration import Configured, queue_step
from txobserver.events import Configure, Message, Removal
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import ClientsServed, Content, Ledger, pages
from txobserver.xid import Xid


class MemoryHost:
    """What is visible at the active primary: queue name -> {place: (rid, body)} in order.

    Many methods: one for each thing that a host is told, and for each thing that a client does.
    """

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self.content: Content | None = None
        self.visible: dict[int, dict[int, tuple[int, bytes]]] = {}
        self.watermarks: dict[int, int] = {}
        self.prepared: dict[Xid, PreparedBranch] = {}
        self.ended: list[tuple[Xid, bool]] = []
        self.room = 0
        self.unseen: list[Callable[[], None]] | None = None
        """What has been told of a step that is not whole yet"""
        self.announced: dict[int, int] = {}
        self.closed: list[str] = []
        self.answers: list[tuple[str, str | None]] = []
        self.on_ok: Callable[[str], None] = lambda label: None
        self.drains = True
        self.draining = False
        self.served: ClientsServed | None = ClientsServed(0, 0)

    def on_active(self, ledger: Ledger, content: Content) -> None:
        self.ledger, self.content = ledger, content
        self.visible = {
            spec.number: {place: (entry.rid, entry.message.body) for place, entry in pages(content, spec.number)}
            for spec in content.configuration.queues.values()
        }
        self.watermarks = {number: content.summary(number).watermark for number in self.visible}
        self.prepared = {branch.xid: branch for branch in content.branches()}

    def on_draining(self) -> bool:
        self.draining = self.drains
        return self.drains

    def on_inactive(self, reason: str) -> None:
        self.draining = False
        self.announced = {}
        self.ledger = self.content = None
        self.visible, self.prepared, self.unseen = {}, {}, None
        self.closed.append(reason)

    def on_arriving(self, queue: int, messages: int) -> None:
        assert self.ledger, "no client is served"
        before = self.announced.get(queue, 0)
        self.announced[queue] = before + messages
        if self.room:
            self.ledger.grant(queue, min(self.room, messages), before)

    def on_configured(self, step: Configure, done: Configured) -> None:
        assert self.content
        for spec in self.content.configuration.queues.values():
            self.visible.setdefault(spec.number, {})

    def on_step_begins(self) -> None:
        assert self.content, "no client is served"
        assert self.unseen is None, "a step begins within another"
        self.unseen = []

    def on_step_ends(self) -> None:
        unseen, self.unseen = self.unseen, None
        assert unseen is not None, "a step ends that has not begun"
        for each in unseen:
            each()

    def on_enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        assert self.content, "no client is served"
        if self.unseen is not None:
            self.unseen.append(lambda: self._enqueued(queue, place, rid, message))
        else:
            self._enqueued(queue, place, rid, message)

    def _enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        assert place not in self.visible[queue], "a message entered a queue twice"
        self.visible[queue][place] = (rid, message.body)

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        assert self.content, "no client is served"
        if self.unseen is not None:
            self.unseen.append(lambda: self._removed(queue, entries))
        else:
            self._removed(queue, entries)

    def _removed(self, queue: int, entries: Sequence[tuple[int, int]]) -> None:
        for place, rid in entries:
            assert self.visible[queue].pop(place)[0] == rid

    def on_purged(self, queue: int, place: int, spared: Sequence[int], count: int) -> None:
        assert self.content, "no client is served"
        for each in [p for p in self.visible.get(queue, {}) if p <= place and p not in spared]:
            del self.visible[queue][each]

    def on_watermark(self, queue: int, place: int) -> None:
        assert self.content, "no client is served"
        self.watermarks[queue] = max(self.watermarks.get(queue, 0), place)

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        assert self.content, "no client is served"
        self.prepared[branch.xid] = branch

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        assert self.content, "no client is served"
        assert self.prepared.pop(branch.xid) == branch
        self.ended.append((branch.xid, committed))

    # -- what a client does

    def declare(self, name: str) -> None:
        assert self.ledger
        self.ledger.configure(queue_step(name, False, {}), self.note(f"declare {name}"))

    def number(self, name: str) -> int:
        assert self.content
        number = self.content.configuration.queue_number(name)
        assert number is not None
        return number

    def publish(self, name: str, body: str) -> None:
        assert self.ledger
        self.ledger.publish([self.number(name)], text(body), self.note(f"publish {body}"))

    def bodies(self, name: str) -> list[str]:
        queue = self.visible[self.number(name)]
        return [queue[place][1].decode() for place in sorted(queue)]

    def entry(self, name: str, body: str) -> tuple[int, int]:
        found = [(p, rid) for p, (rid, data) in self.visible[self.number(name)].items() if data == body.encode()]
        return found[0]

    def note(self, label: str):  # type: ignore[no-untyped-def]
        def done(error: str | None) -> None:
            self.answers.append((label, error))
            if error is None:
                self.on_ok(label)

        return done

    def answer(self, label: str) -> str | None:
        """'ok', the error, or None while there is no answer."""
        found = [error for known, error in self.answers if known == label]
        assert len(found) <= 1, "answered twice"
        return ("ok" if found[0] is None else found[0]) if found else None


def text(body: str) -> Message:
    return Message("", "", b"", body.encode())
