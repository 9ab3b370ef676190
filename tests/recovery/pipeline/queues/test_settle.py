"""``txha dtx settle-spark``: the end of what drivers have left behind that never come again."""

from __future__ import annotations

import json
import subprocess
import sys

from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.pipeline.queues.batch_decisions import BatchDecisions
from recovery.pipeline.queues.names import record_queue
from tests.recovery.pipeline.queues.conftest import Query, drained


def run(cluster: LocalCluster, *query: Query, options: tuple[str, ...] = ()) -> tuple[int, dict[str, str]]:
    """Exit status, and what became of the branches of these queries."""
    command = [sys.executable, "-m", "broker_plugin.cli.main", "dtx", "settle-spark", "--json"]
    done = subprocess.run(
        [*command, "--broker", ",".join(cluster.urls), *options], capture_output=True, text=True, check=False
    )
    ids = {each.id for each in query}
    return done.returncode, {each["branch"]: each["state"] for each in json.loads(done.stdout) if each["query"] in ids}


def test_decided_lost_and_undecided(query: Query, cluster: LocalCluster, channel: BlockingChannel, queue: str) -> None:
    [lost], [won] = query.write(0, "a").branches, query.write(0, "a").branches
    with BatchDecisions(query.options.hosts, query.id, 20) as driver:
        driver.decide(0, [won], first=True)
    [next_one] = query.write(1, "b").branches
    expected = {lost: "rolled back", won: "committed", next_one: "undecided"}
    assert run(cluster, query) == (1, expected)
    assert drained(channel, queue) == ["a"]
    assert run(cluster, query, options=("--give-up", query.id))[1] == {next_one: "rolled back"}
    assert run(cluster, query)[1] == {}
    assert channel.queue_declare(record_queue(query.id), passive=True).method.message_count == 1
    query.commit(query.write(1, "b"))
    assert drained(channel, queue) == ["b"]
