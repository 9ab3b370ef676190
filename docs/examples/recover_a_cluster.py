"""Recover a cluster: three nodes do work, all are killed, two stores are ruined, and nothing acknowledged is lost.

    .venv/bin/python docs/examples/recover_a_cluster.py [DIRECTORY]

It takes half a minute, makes everything below DIRECTORY (a temporary one if it is not given), and prints what it does
and what ``txha`` answers. The last part is what an operator does after a crash; docs/recovery.md explains it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pika

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from txha import Broker, DecisionLog
from txha.resources import Participant, branch_xid, new_global_name

TXHA = (sys.executable, "-m", "broker_plugin.cli.main")
NODES = ("node-1", "node-2", "node-3")


def main(directory: Path) -> None:
    log = directory / "decisions.log"
    say("Three nodes. A hundred orders come in, and ten of them are taken and answered in transactions.")
    with LocalCluster(directory / "cluster") as cluster:
        work(cluster.urls[0])
        say("A coordinator prepares a branch, decides to commit it, and dies before it says so to the broker.")
        decide_and_die(cluster, log)
        say("The power goes.")
        kill_all(cluster)
    say("The log of node-1 has lost a bit, and the disk of node-3 is gone.")
    lose_a_bit(cluster.directory / "node-1" / "log")
    shutil.rmtree(cluster.directory / "node-3")

    say("The operator asks for a plan, and carries it out.")
    given = (str(cluster.directory), "--decisions", str(log))
    txha("recover", "--plan", *given)
    plan = json.loads(txha("recover", "--plan", *given, "--json", show=False))
    assert plan["promote"] == "node-2" and plan["nothing_acknowledged_is_lost"]
    txha("recover", "--apply", *given)

    say("The cluster is started; node-1 and node-3 come back with new stores.")
    with LocalCluster(cluster.directory) as cluster:
        wait_until(cluster.all_ready, 30, "all nodes ready")
        for node in cluster.status():
            assert node["queues"] == plan["queues"], f"{node['name']} does not hold what the plan said"
        say(
            "Every node holds, message by message, what the plan said. Now the branch, by the last command of the plan:"
        )
        txha(*shlex.split(plan["next"][-1]["command"])[1:])
        assert counts(cluster.urls[0]) == {"orders": 89, "answers": 11}
        say("89 orders wait, 11 are answered: all that was acknowledged or decided is there, once.")


def work(url: str) -> None:
    """Publish a hundred orders and answer ten of them: ninety orders are left, and ten answers."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for queue in ("orders", "answers"):
            channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for number in range(100):
            channel.basic_publish("", "orders", b"order %d" % number)
        transactional = connection.channel()
        transactional.tx_select()
        for _ in range(10):
            answer(transactional)
            transactional.tx_commit()


def answer(channel: Any) -> None:
    """Take an order and publish an answer."""
    method, _, body = channel.basic_get("orders")
    channel.basic_publish("", "answers", body)
    channel.basic_ack(method.delivery_tag)


def decide_and_die(cluster: LocalCluster, path: Path) -> None:
    """Prepare the eleventh answer at the broker, and commit it in the decision log only."""
    log, broker = DecisionLog(path), Broker(*cluster.urls)
    name = str(new_global_name(log.whose))
    xid = branch_xid(name, "broker")
    broker.begin(xid)
    answer(broker.channel)
    participant = broker.prepare(xid)
    assert isinstance(participant, Participant)
    log.decide(name, True, [participant])
    log.close()
    broker.close()


def kill_all(cluster: LocalCluster) -> None:
    for node in NODES:
        os.kill(cluster.pid(node), signal.SIGKILL)
    wait_until(lambda: not any(map(cluster.processes.runs, NODES)), 10, "the end of all nodes")


def lose_a_bit(log: Path) -> None:
    """Flip a bit in the last event of a log that has been written as a whole."""
    segment = max(log.iterdir())
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"TXHA") + 50] ^= 1
    segment.write_bytes(data)


def counts(url: str) -> dict[str, int]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        return {
            queue: channel.queue_declare(queue, passive=True).method.message_count for queue in ("orders", "answers")
        }


def txha(*words: str, show: bool = True) -> str:
    """Run a command that must succeed, and return what it prints."""
    if show:
        print("$ txha", shlex.join(words), flush=True)
    done = subprocess.run([*TXHA, *words], capture_output=True, text=True, check=False)
    if show:
        print(done.stdout, done.stderr, sep="", flush=True)
    assert done.returncode == 0, f"txha {shlex.join(words)} ended with status {done.returncode}: {done.stderr}"
    return done.stdout


def say(sentence: str) -> None:
    print(f"\n== {sentence}\n", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="txha-example-") as temporary:
            main(Path(temporary))
