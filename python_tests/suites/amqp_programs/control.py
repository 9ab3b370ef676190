"""A connection beside those of the programs, for barriers and for cleaning up."""

from __future__ import annotations

import time

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.client import SECONDS, Client, Received, Silence
from python_tests.suites.amqp_programs.program import Op, octets_of

BEHIND = "zz.behind"
LOCKED = 405
BETWEEN_LOOKS = 0.002
"""Seconds."""


class Control:
    """Channel 1 asks, channel 2 looks whether something has gone."""

    def __init__(self, address: Address) -> None:
        self._client = Client(address)
        self.product = self._client.product
        self._published = 0
        self._open()
        self.ask("queue.declare", {"queue": BEHIND, "durable": True})
        self.ask("queue.purge", {"queue": BEHIND})

    def ask(self, name: str, arguments: dict[str, object]) -> Received:
        """One request on channel 1, and its answer. What is another connection's is asked for until that has ended.

        Silence if that is not so in time, or if the request is refused for another reason.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            self._client.send(1, name, arguments)
            answer = self._client.until((f"{name}-ok", "channel.close"))
            if answer.name != "channel.close":
                return answer
            self._client.send(1, "channel.close-ok")
            if answer.fields["code"] != LOCKED or time.monotonic() > deadline:
                raise Silence(f"{self.product} refuses {name}: {answer.fields['text']}")
            self._open()
            time.sleep(BETWEEN_LOOKS)

    def _open(self) -> None:
        self._client.send(1, "channel.open")
        self._client.until(("channel.open-ok",))
        self._client.send(1, "confirm.select")
        self._client.until(("confirm.select-ok",))
        self._published = 0

    def pass_by(self) -> None:
        """Until everything that was asked before has been done."""
        self._published += 1
        publish = Op(1, "basic.publish", {"exchange": "", "key": BEHIND, "body": "behind"})
        self._client.send_bytes(octets_of((publish,), 0))
        while self._client.until(("basic.ack",)).fields["delivery"] < self._published:
            pass
        if self._published % 500 == 0:
            self.ask("queue.purge", {"queue": BEHIND})

    def wait_until_gone(self, queue: str) -> None:
        """Until an exclusive queue of another connection has gone with it. Silence if it stays."""
        deadline = time.monotonic() + SECONDS
        while True:
            self._client.send(2, "channel.open")
            self._client.send(2, "queue.declare", {"queue": queue, "passive": True})
            code = self._client.until(("channel.close",)).fields["code"]
            self._client.send(2, "channel.close-ok")
            if code == 404:
                return
            if time.monotonic() > deadline:
                raise Silence(f"a connection's queue is still there {SECONDS} seconds after its socket was closed")
            time.sleep(BETWEEN_LOOKS)

    def close(self) -> None:
        """Leave nothing behind."""
        self.ask("queue.delete", {"queue": BEHIND})
        self._client.close()
