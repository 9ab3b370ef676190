"""Thousands of prepared branches at once on three real nodes: what they cost, printed as JSON.

    python -m tests.processes.many_branches [10000]

Each branch takes one message from a queue and puts one of 100 bytes into another.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pamqp.commands import Basic

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.memory import anonymous_bytes
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields

TOGETHER = 100
"""Channels of one connection that each have a branch on its way."""

BODY = b"x" * 100


def port_of(cluster: LocalCluster, node: str) -> int:
    """Where clients reach this node."""
    return cluster.ports[int(node.removeprefix("node-")) - 1]


def name(number: int) -> XidFields:
    """The xid of one of them."""
    return XidFields(1, b"transaction %d" % number, b"broker")


def prepare_many(port: int, count: int) -> None:
    """So many branches, each of which takes a message from "in" and puts one into "out", prepared."""
    first = DtxChannel(port)
    first.declare("in")
    first.declare("out")
    for begin in range(0, count, 1000):
        first.publish("in", *[BODY] * min(1000, count - begin))
        first.count("in")
    channels = [first]
    while len(channels) < min(TOGETHER, count):
        channels.append(channels[-1].beside())
    for begin in range(0, count, len(channels)):
        here = channels[: count - begin]
        for offset, channel in enumerate(here):
            channel.send(dtx.Start(name(begin + offset)), Basic.Get(0, "in"))
        _take_each(first, here)
        for offset, channel in enumerate(here):
            channel.publish("out", BODY)
            channel.send(dtx.End(name(begin + offset)), dtx.Prepare(name(begin + offset)))
        _prepared_each(first, len(here))
    first.client.close()


def _take_each(first: DtxChannel, channels: list[DtxChannel]) -> None:
    """Acknowledge what each channel has got."""
    by_number = {channel.number: channel for channel in channels}
    missing = len(channels)
    while missing:
        received = first.client.next()
        assert received is not None
        number, value = received
        if isinstance(value, Basic.GetOk):
            by_number[number].send(Basic.Ack(value.delivery_tag or 0))
            missing -= 1
        assert not isinstance(value, Basic.GetEmpty)


def _prepared_each(first: DtxChannel, missing: int) -> None:
    while missing:
        received = first.client.next()
        assert received is not None
        if isinstance(received[1], dtx.PrepareOk):
            assert received[1].status == 0
            missing -= 1


def measure(count: int) -> dict[str, float]:
    """Seconds and bytes."""
    with tempfile.TemporaryDirectory() as directory, LocalCluster(Path(directory) / "cluster") as cluster:
        lost = cluster.primary()
        assert lost is not None
        nodes = [node["name"] for node in cluster.status()]
        before = {node: anonymous_bytes(cluster.pid(node)) for node in nodes}
        began = time.monotonic()
        prepare_many(port_of(cluster, lost), count)
        found = {"branches": count, "prepare_seconds": time.monotonic() - began}
        grown = {node: anonymous_bytes(cluster.pid(node)) - before[node] for node in nodes}
        found["bytes_per_branch_at_the_primary"] = grown.pop(lost) / count
        found["bytes_per_branch_at_a_backup"] = max(grown.values()) / count
        found["recover_seconds"] = _recover(cluster, lost, count)
        killed = cluster.kill(lost)
        wait_until(lambda: cluster.primary() not in (None, lost), 60, "another primary")
        found["takeover_seconds"] = time.monotonic() - killed
        primary = cluster.primary()
        assert primary is not None
        found["recover_seconds_after_the_takeover"] = _recover(cluster, primary, count)
        _commit_some(cluster, primary, count)
        return {key: round(value, 3) for key, value in found.items()}


def _recover(cluster: LocalCluster, node: str, count: int) -> float:
    channel = DtxChannel(port_of(cluster, node))
    began = time.monotonic()
    listed = channel.recover()
    took = time.monotonic() - began
    assert sorted(listed) == sorted(map(name, range(count)))
    channel.client.close()
    return took


def _commit_some(cluster: LocalCluster, node: str, count: int) -> None:
    """A hundred of them, or all: each puts one message into "out"."""
    channel = DtxChannel(port_of(cluster, node))
    some = range(0, count, max(1, count // 100))
    assert channel.count("out") == channel.count("in") == 0
    assert {channel.commit(name(number)) for number in some} == {0}
    assert channel.count("out") == len(some) and len(channel.recover()) == count - len(some)


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if sys.argv[1:] else 10_000), indent=2))
