"""Plays scenarios against a broker. ``python -m tests.broker_plugin.amqp.play PORT`` records a RabbitMQ's answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pamqp.commands import Channel, Exchange, Queue

from tests.broker_plugin.amqp.raw_client import RawClient, show
from tests.broker_plugin.amqp.scenarios import SCENARIOS, Step

RECORDED = Path(__file__).with_name("rabbitmq_3_10.json")
QUIET = 0.4
"""Seconds without a frame after which a recorded step is taken to be answered."""

PROBE = 2000
"""Number of a channel that no scenario uses."""

Transcript = list[list[str]]


def by_channel(answers: list[str]) -> list[str]:
    """Answers on one channel in their order; AMQP orders nothing between channels."""
    return sorted(answers, key=lambda answer: answer.split(" ")[0])


class Player:
    """Plays one scenario on connections of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: dict[str, RawClient] = {}
        self._opened: set[tuple[str, int]] = set()

    def send(self, step: Step) -> RawClient:
        """Carry out a step, after opening its connection and channel if need be."""
        client = self._clients.get(step.connection)
        if client is None:
            client = self._clients[step.connection] = RawClient(self._port)
        key = (step.connection, step.channel)
        if step.channel and key not in self._opened:
            self._opened.add(key)
            client.send(step.channel, Channel.Open())
            client.next()
        client.send(step.channel, *step.frames)
        return client

    def surplus(self) -> list[str]:
        """What has come beside what was expected."""
        found = []
        for client in self._clients.values():
            for probe in (PROBE, PROBE + 1):
                if client.closed or client.refused:
                    continue
                client.send(probe, Channel.Open())
                while (received := client.next()) is not None and received[0] != probe:
                    found.append(show(received))
        return found

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def record(port: int, steps: list[Step]) -> Transcript:
    """What the broker answers to each step until it is quiet."""
    player = Player(port)
    transcript: Transcript = []
    for step in steps:
        client, answers = player.send(step), []
        while not client.closed:
            try:
                answers.append(show(client.next(QUIET)))
            except TimeoutError:
                break
        transcript.append(by_channel(answers))
    player.close()
    _clean(port, steps)
    return transcript


def replay(port: int, steps: list[Step], expected: Transcript) -> Transcript:
    """What the broker answers to each step: as many frames as are expected, and at the end what came beside them."""
    player = Player(port)
    transcript: Transcript = []
    for step, answers in zip(steps, expected, strict=True):
        client = player.send(step)
        got: list[str] = []
        for _ in answers:
            try:
                got.append(show(client.next(2.0)))
            except TimeoutError:
                got.append("nothing")
                break
        transcript.append(by_channel(got))
        if transcript[-1] != answers:
            break
    if transcript == expected and (surplus := player.surplus()):
        transcript.append(surplus)
    player.close()
    return transcript


def _clean(port: int, steps: list[Step]) -> None:
    client = RawClient(port)
    client.send(1, Channel.Open())
    for frame in (frame for step in steps for frame in step.frames):
        if isinstance(frame, Queue.Declare) and frame.queue:
            client.send(1, Queue.Delete(queue=frame.queue))
        elif isinstance(frame, Exchange.Declare) and frame.exchange and not frame.exchange.startswith("amq."):
            client.send(1, Exchange.Delete(exchange=frame.exchange))
        else:
            continue
        _, answer = client.next() or (0, None)
        if isinstance(answer, Channel.OpenOk):
            client.next()
        elif isinstance(answer, Channel.Close):
            client.send(1, Channel.CloseOk(), Channel.Open())
    client.close()


if __name__ == "__main__":
    found = {}
    for title, scenario in SCENARIOS.items():
        found[title] = record(int(sys.argv[1]), scenario)
        print(title, file=sys.stderr)
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
