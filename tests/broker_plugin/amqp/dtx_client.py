"""A client of class dtx on a real connection: one channel, blocking, with every answer looked at."""

from __future__ import annotations

from tests.broker_plugin.amqp.plain_channel import PlainChannel
from tests.broker_plugin.amqp.raw_client import RawClient
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields

dtx.register()


def xid(name: str, branch: str = "b", format_id: int = 1) -> XidFields:
    """An xid of these names."""
    return XidFields(format_id, name.encode(), branch.encode())


class DtxChannel(PlainChannel):
    """A channel, in dtx mode unless that is left to the test; on a connection of its own unless one is given."""

    def __init__(self, port: int, client: RawClient | None = None, number: int = 1, select: bool = True) -> None:
        super().__init__(client or RawClient(port), number)
        self.port = port
        if select:
            self.ask(dtx.Select())

    def beside(self, select: bool = True) -> DtxChannel:
        """Another channel of the same connection. Only one of them may wait for answers at a time."""
        return DtxChannel(self.port, self.client, self.number + 1, select)

    def another(self) -> DtxChannel:
        """A channel of another connection."""
        return DtxChannel(self.port)

    # -- branches

    def start(self, which: XidFields, join: bool = False, resume: bool = False) -> int:
        return int(self.ask(dtx.Start(which, join, resume)).status)

    def end(self, which: XidFields, fail: bool = False, suspend: bool = False) -> int:
        return int(self.ask(dtx.End(which, fail, suspend)).status)

    def prepare(self, which: XidFields) -> int:
        return int(self.ask(dtx.Prepare(which)).status)

    def commit(self, which: XidFields, one_phase: bool = False) -> int:
        return int(self.ask(dtx.Commit(which, one_phase)).status)

    def rollback(self, which: XidFields) -> int:
        return int(self.ask(dtx.Rollback(which)).status)

    def forget(self, which: XidFields) -> None:
        self.ask(dtx.Forget(which))

    def decide(self, name: str, commit: bool) -> int:
        return int(self.ask(dtx.Decide(1, name.encode(), commit)).status)

    def outcome(self, which: XidFields) -> int:
        return int(self.ask(dtx.Outcome(0, which)).outcome)

    def outcome_of(self, token: bytes) -> int:
        return int(self.ask(dtx.Outcome(1, XidFields(0, token, b""))).outcome)

    def recover(self) -> list[XidFields]:
        """Every page."""
        found, answer = [], self.ask(dtx.Recover())
        found += dtx.unpack_xids(answer.xids)
        while answer.more:
            answer = self.ask(dtx.Recover(True))
            found += dtx.unpack_xids(answer.xids)
        return found

    def globally(self, name: str) -> tuple[int, dict[XidFields, int]]:
        """Decision and branches of a global transaction, every page."""
        answer = self.ask(dtx.Global(1, name.encode()))
        found = dtx.unpack_states(answer.branches)
        while answer.more:
            answer = self.ask(dtx.Global(1, name.encode(), True))
            found += dtx.unpack_states(answer.branches)
        return answer.decision, dict(found)

    def publish_in(self, which: XidFields, queue: str, *bodies: bytes) -> None:
        """A branch with these publishes, started and ended."""
        assert self.start(which) == 0
        self.publish(queue, *bodies)
        assert self.end(which) == 0

    def prepared(self, which: XidFields, queue: str, *bodies: bytes) -> XidFields:
        """The same, and prepared."""
        self.publish_in(which, queue, *bodies)
        assert self.prepare(which) == 0
        return which
