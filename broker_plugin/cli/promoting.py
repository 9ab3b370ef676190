"""What an operator accepts who promotes a node that may lack something: said in words, before it is done."""

from __future__ import annotations

import sys
from typing import Any


def accepted_version(status: dict[str, Any], yes: bool) -> int | None:
    """The version of the record for which the loss is accepted; None if the operator says no at the terminal.

    ``status``: what the node says of itself. In a script nothing is asked: the option itself is the consent.
    """
    for line in told(status):
        print(line, file=sys.stderr)
    if sys.stdin.isatty() and not yes:
        print("Promote it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return None
    return int(status["record_version"])


def told(status: dict[str, Any]) -> list[str]:
    """What will be lost, in sentences."""
    others = [node for node in status["ready_set"] if node != status["name"]]
    held = f"what only {', '.join(others)} held behind it" if others else "what only nodes held that were ready before"
    return [
        f"{status['name']} stands at {status['position']}: {held} is lost",
        f"the loss is accepted for version {status['record_version']} of the record, and stands in it from then on",
    ]
