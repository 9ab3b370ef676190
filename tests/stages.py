"""Where the core's time goes, stage by stage: three real cores and an embedded broker in one process, without disks.

    python -m tests.stages [--compiled]

Nothing here waits, so the figures are what is computed and nothing else. Each is the least of several rounds, since
other processes can only add to it.
"""

from __future__ import annotations

import gc
import sys
import time

from broker_plugin.compiled import running, use

if "--compiled" in sys.argv:
    use()

from pamqp.commands import Queue, Tx

from broker_plugin.embedded.queues.windows import WindowLimits
from python_tests.benchmarks.load import Shape, batch_bytes
from tests.broker_plugin.amqp.peer import Peer
from tests.broker_plugin.embedded.cluster_harness import ClusterHarness
from tests.support.memory_cluster import MemoryNode

CONNECTIONS = 32
ROUNDS, TURNS = 12, 30
QUEUES = [f"t.{number}" for number in range(4)]


class Stages:
    """Clients of the primary that commit in step, and seconds spent by stage since the last look."""

    def __init__(self) -> None:
        self.harness = ClusterHarness(WindowLimits())
        self.peers = [Peer(self.harness).open(frame_max=131072) for _ in range(CONNECTIONS)]
        for name in QUEUES:
            self.peers[0].send(1, Queue.Declare(queue=name, durable=True))
        for peer in self.peers:
            peer.send(1, Tx.Select())
        self.harness.settle()
        for peer in self.peers:
            peer.connection.take_output()
        self.shape = Shape(queues=QUEUES)
        self.batches = [batch_bytes(self.shape, number) for number in range(self.shape.period)]
        self.spent = dict.fromkeys(self.harness.cluster.nodes, 0.0)
        self._watch()

    def _watch(self) -> None:
        for node in self.harness.cluster.nodes.values():
            node.report = self._timed(node)  # type: ignore[method-assign]

    def _timed(self, node: MemoryNode):  # type: ignore[no-untyped-def]
        report = node.report

        def timed(call, **further):  # type: ignore[no-untyped-def]
            began = time.perf_counter()
            report(call, **further)
            self.spent[node.name] += time.perf_counter() - began

        return timed

    def round(self) -> list[float]:
        """Microseconds per message: reading, the primary's core, a backup's core."""
        self.spent = dict.fromkeys(self.spent, 0.0)
        reading = 0.0
        for turn in range(TURNS):
            began = time.perf_counter()
            for number, peer in enumerate(self.peers):
                peer.connection.receive(self.batches[(turn + number) % len(self.batches)])
            reading += time.perf_counter() - began
            waiting = set(self.peers)
            self.harness.node.report(lambda: None)
            while waiting:
                self.harness.cluster.turn()
                waiting = {peer for peer in waiting if not peer.connection.take_output()}
        primary = self.spent.pop(self.harness.node.name)
        backup = sum(self.spent.values()) / len(self.spent)
        self.spent[self.harness.node.name] = 0.0
        return [each * 1e6 / (TURNS * CONNECTIONS * self.shape.messages) for each in (reading, primary, backup)]


def main() -> None:
    """Print the table."""
    stages = Stages()
    gc.freeze()
    gc.set_threshold(10_000, 4, 100_000)
    reading, primary, backup = map(min, zip(*(stages.round() for _ in range(ROUNDS)), strict=True))
    print(f"core {running()}, microseconds per message:")
    print(f"  primary: frames to events of the stream        {reading:6.2f}")
    print(f"  primary: events to frames, apply, answer       {primary:6.2f}")
    print(f"  backup:  frames to events, apply, acknowledge  {backup:6.2f}")


if __name__ == "__main__":
    main()
