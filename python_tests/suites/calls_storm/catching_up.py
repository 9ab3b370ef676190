"""How long a node that was down takes to catch up: on state, by the stream, and on actions, each of which it runs."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pika

from python_tests.harness.waiting import wait_until
from python_tests.suites.calls_storm.site import StormSite
from python_tests.suites.calls_storm.storm import Say

LEVELS = ("warning", "error")

CONNECTIONS = 8
QUEUES = 250
"""Of each connection."""


class CaughtUp(NamedTuple):
    """Seconds from the start of the process: until it is ready, and has all state; until it has run all actions."""

    state_calls: int
    actions: int
    ready: float
    all_run: float


def caught_up(site: StormSite, state_calls: int, actions: int, say: Say) -> CaughtUp:
    """One backup is down while all of that is made."""
    missing = site.cluster.backups()[0]
    site.cluster.kill(missing)
    here = [node for node in site.nodes if node != missing]
    wait_until(lambda: len(site.cluster.backups()) == 1, 30, "the ready set")
    _declare(site, state_calls, say)
    for number in range(actions):
        answer = site.make(here[0], "log_level", {"level": [LEVELS[number % 2]]}, 2, 30.0)
        if answer["result"] != "done":
            raise RuntimeError(f"an action was not made: {answer}")
        if number % 100 == 99:
            say(f"{number + 1} of {actions} actions made")
    began = time.monotonic()
    site.start(missing)
    site.cluster.wait_state(missing, "ready", 120.0)
    ready = time.monotonic() - began
    last = max(each["calls"]["last"] for each in site.cluster.status())
    wait_until(lambda: _cursor(site, missing) == last, 120, "its cursor", every=0.02)
    all_run = time.monotonic() - began
    ids = {each["config_id"] for each in site.cluster.status()}
    if len(ids) != 1:
        raise RuntimeError(f"the nodes stand at different steps of configuration: {sorted(ids)}")
    return CaughtUp(state_calls, actions, ready, all_run)


def _declare(site: StormSite, count: int, say: Say) -> None:
    """Queues and deletions: each is a step of the configuration, under the same numbering as calls."""
    primary = site.cluster.primary()
    assert primary is not None
    url = site.cluster.url(primary)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        parts = [count // CONNECTIONS + (each < count % CONNECTIONS) for each in range(CONNECTIONS)]
        list(pool.map(lambda part: _declare_part(url, *part), enumerate(parts)))
    say(f"{count} state calls made")


def _declare_part(url: str, connection: int, count: int) -> None:
    """Each of these queues is declared, then deleted, then declared again."""
    with pika.BlockingConnection(pika.URLParameters(url)) as client:
        channel = client.channel()
        for number in range(count):
            name = f"q{connection}.{number % QUEUES}"
            if number // QUEUES % 2 == 0:
                channel.queue_declare(name, durable=True)
            else:
                channel.queue_delete(name)


def _cursor(site: StormSite, node: str) -> int:
    found = next(each for each in site.cluster.status() if each["name"] == node)
    return int(found.get("calls", {}).get("cursor", -1))
