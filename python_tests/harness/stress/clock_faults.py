"""The faults of clocks: a little off, or off by days. The monotonic clocks are left alone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.fault import NodeFault, NotAsTold
from recovery.dtx.errors import DatabaseError
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import TxConnection
from txobserver.outcomes import BranchOutcome

TAKES_SECONDS = 1.5
"""Until a process is sure to live by the new time: libfaketime looks once a second"""
ANSWER_SECONDS = 10.0
QUEUE = "clock-jump"


class Clock(NodeFault):
    kind = "clock"
    what = "a node's wall clock is off, by up to two hours either way; the monotonic clocks are left alone"
    seconds = (2, 7200)

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.clock is not None else "the nodes live by the true clock"

    def begin(self) -> str:
        assert self.cluster.clock is not None
        self._moved = time.monotonic()
        self._off = self.ground.random.choice((-1, 1)) * self.ground.random.randint(*self.seconds)
        self.cluster.clock.shift(self.target, self._off)
        return f"the clock of {self.target} is off by {self._off} s"

    def heal(self) -> bool:
        assert self.cluster.clock is not None
        self.wait_taken()
        try:
            faked = "libfaketime" in Path(f"/proc/{self.cluster.pid(self.target)}/maps").read_text()
        except (LookupError, OSError):
            faked = False
        self.cluster.clock.shift(self.target, -self._off)
        return faked

    def wait_taken(self) -> None:
        """Until the target is sure to live by the new time."""
        time.sleep(max(0.0, self._moved + TAKES_SECONDS - time.monotonic()))


class ClockJump(Clock):
    """Longer than anything is remembered for. Nothing that has just ended may be forgotten for it.

    So it commits a transaction of its own before, one after, and asks for both outcomes. When it is over the clock
    jumps back by as much.
    """

    kind = "clock-jump"
    what = "a node's wall clock jumps by 2 to 400 days either way, and back later"
    seconds = (2 * 86400, 400 * 86400)

    def begin(self) -> str:
        self._tokens: list[bytes] = []
        self._commit()
        return super().begin()

    def heal(self) -> bool:
        self.wait_taken()
        self._commit()
        forgotten = self._forgotten()
        hit = super().heal()
        if forgotten := forgotten or self._forgotten():
            raise NotAsTold(f"{self.target}'s clock jumped, and a transaction just committed reads {forgotten}")
        return hit

    def _commit(self) -> None:
        """A transaction by a token, if nothing else keeps it from being committed."""
        token = self.ground.random.randbytes(16)
        with contextlib.suppress(DatabaseError, *LOST), self._connection() as broker:
            broker.channel.queue_declare(QUEUE, durable=True)
            broker.channel.basic_publish("", QUEUE, b"")
            broker.commit(token)
            self._tokens.append(token)

    def _forgotten(self) -> str:
        """What the outcome of one of them reads that should read committed; empty if all that answer are remembered."""
        for token in self._tokens:
            with contextlib.suppress(DatabaseError, *LOST), self._connection() as broker:
                outcome = broker.outcome(token)
                if outcome not in (BranchOutcome.COMMITTED, BranchOutcome.PENDING):
                    return outcome.name
        return ""

    def _connection(self) -> TxConnection:
        return TxConnection(*self.cluster.urls, patience=ANSWER_SECONDS)
