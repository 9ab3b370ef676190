"""What an operator accepts who promotes a node that may lack something: said in words, before it is done."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from broker_plugin.cli.asking import BadArgument, node_entry, node_status, nodes_shown
from broker_plugin.cli.layout import NodeEntry
from broker_plugin.cli.terminal import say
from recovery.reader.node_admin import AdminError, NotRunning

_POLL_SECONDS = 0.1


Nodes = Callable[[], Sequence[NodeEntry]]
"""The nodes that can be asked, as they are now"""


def promoted(dir: Path | None, config: Path | None, node: str | None) -> tuple[Nodes, NodeEntry]:
    """Which nodes can be asked, and the one that shall be primary. Raises BadArgument, ClusterError, ConfigError."""
    look = partial(nodes_shown, dir, config, "say where the node is")
    if config is None and dir is not None:
        if node is None:
            raise BadArgument("say which node shall be primary: txha promote --dir DIR NODE")
        return look, node_entry(dir, node)
    (own,) = look()
    if node not in (None, own.name):
        raise BadArgument(f"{config} is the file of {own.name}, not of {node}: leave the name out")
    return look, own


@contextmanager
def by_name(node: str, config: Path | None) -> Iterator[None]:
    """Tells of a node that does not run by its name, where that of its directory stands for it. Raises AdminError."""
    try:
        yield
    except NotRunning as error:
        if config is None:  # `txha cluster` calls directories as their nodes
            raise
        raise AdminError(f"{node} does not run: start it with `txha node --config {config}`") from error


def check_waiting(wait: bool, timeout: float | None, as_json: bool) -> None:
    """Refuse what has no effect, or cannot be. Raises BadArgument."""
    if as_json and not wait:
        raise BadArgument("--json prints what has happened, for which --wait waits; leave it out with --no-wait")
    if timeout is not None and not wait:
        raise BadArgument("--timeout says how long --wait waits; leave it out with --no-wait")
    if timeout is not None and not 0 <= timeout < math.inf:
        raise BadArgument("--timeout must be a finite number of seconds, and not negative")


def accepted_version(status: dict[str, Any], yes: bool) -> int | None:
    """The version of the record for which the loss is accepted; None if the operator says no at the terminal.

    ``status``: what the node says of itself. In a script nothing is asked: the option itself is the consent.
    """
    if sys.stdin.isatty() and not yes:
        say(f"{lost(status)} if it is promoted", beside=True)
        print("Promote it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return None
    return int(status["record_version"])


def lost(status: dict[str, Any]) -> str:
    """What goes with a promotion of this node."""
    name = status["name"]
    ready = [node for node in status["ready_set"] if node != name]
    if status.get("former_store_ready"):  # an earlier version does not say it
        ready.append(f"the former store of {name}")
    return f"{name} stands at {status['position']}: what {' and '.join(ready) or 'other nodes'} held behind it is lost"


def say_accepted(status: dict[str, Any]) -> None:
    """The node has taken the promotion: only now the loss is accepted."""
    say(lost(status), beside=True)
    say(
        f"the loss is accepted for version {status['record_version']} of the record, and stands in it from then on",
        beside=True,
    )


def say_promoted(node: str, status: dict[str, Any], as_json: bool) -> None:
    """What has happened, by what the new primary says of itself; ``handover`` is None where it has not been told."""
    generation, handover = status["generation"], status.get("handover")
    if as_json:
        print(json.dumps({"node": node, "generation": generation, "handover": handover}))
        return
    say(f"{node} is primary of generation {generation}")
    if handover is not None:
        closed = f"{handover['from']} closed {handover['clients']} clients after {handover['drained']:.3f} s"
        unknown = f"{handover['undecided']} of them with an outcome that they do not know"
        say(f"{closed}, {unknown}; no node served for {handover['pause']:.3f} s")


def wait_active(nodes: Nodes, node: str, since: int, seconds: float) -> dict[str, Any]:
    """Return what this one of the nodes says of itself when it is the active primary.

    ``since``: the greatest generation that was known when the promotion was asked for. Raises AdminError if the node
    ends, if another one is promoted since, and if it takes longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = {entry.name: node_status(entry) for entry in nodes()}
        if found[node]["state"] == "active" and found[node]["generation"] > since:
            return found[node]
        if found[node]["state"] == "down":
            raise AdminError(f"{node} does not run any more, and has not become primary; its log says why")
        others = [name for name, each in found.items() if each["state"] == "active" and each["generation"] > since]
        if others:
            raise AdminError(f"{others[0]} has become primary instead of {node}; the logs of both say why")
        if time.monotonic() >= deadline:
            raise AdminError(
                f"{node} is not primary after {seconds:g} s, and may still become it; see `txha status`, and the log "
                f"of {node} if it stays {found[node]['state']}"
            )
        time.sleep(_POLL_SECONDS)


def greatest_generation(nodes: Nodes) -> int:
    """Of those of these nodes that answer; 0 if none does."""
    return max((int(node_status(entry)["generation"]) for entry in nodes()), default=0)
