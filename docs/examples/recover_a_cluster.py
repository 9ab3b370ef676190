"""Recover a cluster: three nodes do work, all are killed, two stores are ruined, and nothing acknowledged is lost.

    .venv/bin/python docs/examples/recover_a_cluster.py [DIRECTORY]

It takes half a minute, makes everything below DIRECTORY (a temporary one if it is not given), and prints what it does
and what ``txha`` answers. The last part is what an operator does after a crash; docs/recovery.md explains it. It uses
the command ``txha`` of the environment that it runs in, and the extra ``clients``.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pika

from txha import Broker, DecisionLog
from txha.resources import Participant, branch_xid, new_global_name

TXHA = str(Path(sys.executable).with_name("txha"))


def main(directory: Path) -> None:
    log = directory / "decisions.log"
    say("Three nodes. A hundred orders come in, and ten of them are taken and answered in transactions.")
    cluster, port = directory / "cluster", free_base_port()
    urls = [f"amqp://guest:guest@127.0.0.1:{port + number}/" for number in range(3)]
    with running(cluster, "--base-port", str(port)):
        work(urls[0])
        say("A coordinator prepares a branch, decides to commit it, and dies before it says so to the broker.")
        decide_and_die(urls, log)
        say("The power goes.")
        kill_all(cluster)
    say("The log of node-1 has lost a bit, and the disk of node-3 is gone.")
    lose_a_bit(cluster / "node-1" / "log")
    shutil.rmtree(cluster / "node-3")

    say("The operator asks for a plan, and carries it out.")
    given = (str(cluster), "--decisions", str(log))
    txha("recover", "--plan", *given)
    plan = json.loads(txha("recover", "--plan", *given, "--json", show=False))
    assert plan["promote"] == "node-2" and plan["nothing_acknowledged_is_lost"]
    txha("recover", "--apply", *given)

    say("The cluster is started; node-1 and node-3 come back with new stores.")
    with running(cluster, "--base-port", str(port)):
        for node in json.loads(txha("status", "--dir", str(cluster), "--json", show=False)):
            assert node["queues"] == plan["queues"], f"{node['name']} does not hold what the plan said"
        say("Every node holds, message by message, what the plan said. The last command of the plan ends the branch:")
        txha(*shlex.split(plan["next"][-1]["command"])[1:])
        assert counts(urls[0]) == {"orders": 89, "answers": 11}
        say("89 orders wait, 11 are answered: all that was acknowledged or decided is there, once.")


@contextmanager
def running(directory: Path, *options: str) -> Iterator[None]:
    """A cluster all of whose nodes are ready, until the block ends."""
    process = subprocess.Popen(
        [TXHA, "cluster", "--dir", str(directory), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stderr is not None
    said = Thread(target=process.stderr.read)  # what the nodes say; it stands in their logs, too
    said.start()
    try:
        if process.stdout.readline() != "cluster ready\n":
            raise SystemExit(f"the cluster has ended; {directory}/node-*/node.log say why")
        yield
    finally:
        process.terminate()
        process.wait()
        said.join()
        process.stdout.close()
        process.stderr.close()


def free_base_port() -> int:
    """The first of three neighbouring ports that are free."""
    while True:
        base = random.randrange(5701, 30000)
        try:
            with ExitStack() as sockets:
                for number in range(3):
                    sockets.enter_context(socket.socket()).bind(("127.0.0.1", base + number))
            return base
        except OSError:
            continue


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


def decide_and_die(urls: list[str], path: Path) -> None:
    """Prepare the eleventh answer at the broker, and commit it in the decision log only."""
    log, broker = DecisionLog(path), Broker(*urls)
    name = str(new_global_name(log.whose))
    xid = branch_xid(name, "broker")
    broker.begin(xid)
    answer(broker.channel)
    participant = broker.prepare(xid)
    assert isinstance(participant, Participant)
    log.decide(name, True, [participant])
    log.close()
    broker.close()


def kill_all(cluster: Path) -> None:
    """``txha cluster`` has written down which process each node is."""
    for node in json.loads((cluster / "cluster.json").read_text())["nodes"]:
        os.kill(node["pid"], signal.SIGKILL)


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
    done = subprocess.run([TXHA, *words], capture_output=True, text=True, check=False)
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
