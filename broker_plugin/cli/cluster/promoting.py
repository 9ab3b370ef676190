"""What an operator accepts who promotes a node that may lack something: said in words, before it is done."""

from __future__ import annotations

import sys
from typing import Any


def accepted_version(status: dict[str, Any], yes: bool) -> int | None:
    """The version of the record for which the loss is accepted; None if the operator says no at the terminal.

    ``status``: what the node says of itself. In a script nothing is asked: the option itself is the consent.
    """
    if sys.stdin.isatty() and not yes:
        print(f"{lost(status)} if it is promoted", file=sys.stderr)
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
    print(lost(status), file=sys.stderr)
    print(
        f"the loss is accepted for version {status['record_version']} of the record, and stands in it from then on",
        file=sys.stderr,
    )
