"""A cluster whose clients use what has no effect here: taken with a warning, then refused, and what is stored works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from python_tests.harness.cluster import LocalCluster

ARGUMENTS = {"x-message-ttl": 86_400_000, "x-max-priority": 3}
LEASE = ("--set", "timing.lease_ttl=30")


def status(directory: Path) -> Any:
    command = [sys.executable, "-m", "broker_plugin.cli.main", "status", "--dir", str(directory), "--json"]
    (node,) = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return node


def test_queues_that_were_stored_with_a_warning_work_when_their_like_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with LocalCluster(directory, 1, *LEASE, "--set", "unsupported=warn") as warning:
        with pika.BlockingConnection(pika.URLParameters(warning.urls[0])) as connection:
            channel = connection.channel()
            for _ in range(3):
                channel.queue_declare("old", durable=True, arguments=ARGUMENTS)
                channel.basic_publish("", "old", b"kept", pika.BasicProperties(priority=2, expiration="86400000"))
        log = (directory / "node-1" / "node.log").read_text()
    assert log.count("args 'x-max-priority', 'x-message-ttl' for queue 'old' is accepted and has no effect") == 1
    assert log.count("property 'priority' for queue 'old'") == log.count("property 'expiration' for exchange ''") == 1
    with LocalCluster(directory, 1, *LEASE) as refusing:
        assert status(directory)["unsupported"] == {"old": ["x-max-priority", "x-message-ttl"]}
        with pika.BlockingConnection(pika.URLParameters(refusing.urls[0])) as connection:
            channel = connection.channel()
            assert channel.queue_declare("old", durable=True, arguments=ARGUMENTS).method.message_count == 3
            channel.basic_publish("", "old", b"new")
            assert [channel.basic_get("old", auto_ack=True)[2] for _ in range(4)] == [b"kept"] * 3 + [b"new"]
            for text, ask in (
                ("args 'x-max-priority', 'x-message-ttl'", lambda c: c.queue_declare("new", arguments=ARGUMENTS)),
                ("property 'priority'", lambda c: publish(c, priority=2)),
                ("property 'expiration'", lambda c: publish(c, expiration="5")),
                ("arg 'x-priority'", lambda c: c.basic_consume("old", print, arguments={"x-priority": 5})),
            ):
                with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"unsupported {text} for ") as refused:
                    ask(connection.channel())
                assert refused.value.reply_code == 406


def publish(channel: Any, **properties: Any) -> None:
    """And wait for what becomes of it."""
    channel.confirm_delivery()
    channel.basic_publish("", "old", b"x", pika.BasicProperties(**properties))
