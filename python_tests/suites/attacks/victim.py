"""The well-behaved client: a process of its own that commits every 50 ms, and writes down when each was answered.

``python -m python_tests.suites.attacks.victim PORT FILE QUEUE-TYPE`` works until SIGTERM; the type is one of RabbitMQ's
(``classic``, ``quorum``). Each line of the file is one transaction: the wall clock when it began, seconds until it was
answered, and how it ended.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType
from typing import Any, TextIO

import pika
from pika.exceptions import AMQPError

EVERY = 0.05
QUEUE = "ha.victim"
COMMITTED, FAILED = "committed", "failed"
BODY = b"m" * 200


class Victim:
    """Publishes a message and takes one, in each transaction, so that its queue stays short."""

    def __init__(self, port: int, file: TextIO, queue_type: str) -> None:
        self._port = port
        self._file = file
        self._queue_type = queue_type
        self._ended = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._ended = True

    def run(self) -> None:
        """Until it is told to end. A connection that is lost is made anew, and the transaction counts as failed."""
        channel: Any = None
        while not self._ended:
            began, clock = time.time(), time.monotonic()
            try:
                channel = channel or self._connect()
                self._work(channel)
                said = COMMITTED
            except (AMQPError, OSError) as error:
                channel, said = None, f"{FAILED}: {type(error).__name__} {error}".replace("\n", " ")
            took = time.monotonic() - clock
            self._file.write(f"{began:.6f} {took:.6f} {said}\n")
            self._file.flush()
            time.sleep(max(0.0, EVERY - took))

    def _connect(self) -> Any:
        parameters = pika.ConnectionParameters("127.0.0.1", self._port, heartbeat=60, blocked_connection_timeout=300)
        channel = pika.BlockingConnection(parameters).channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": self._queue_type})
        channel.tx_select()
        return channel

    def _work(self, channel: Any) -> None:
        channel.basic_publish("", QUEUE, BODY, pika.BasicProperties(delivery_mode=2))
        got, _, _ = channel.basic_get(QUEUE)
        if got is not None:
            channel.basic_ack(got.delivery_tag)
        channel.tx_commit()


def main() -> None:
    """See the module."""
    with open(sys.argv[2], "a") as file:
        Victim(int(sys.argv[1]), file, sys.argv[3]).run()


if __name__ == "__main__":
    main()
