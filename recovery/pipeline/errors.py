"""What the pipeline says when it cannot do what was asked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from txobserver.errors import Error

RAISED = r"^\w[\w.]*(?:Error|Exception): .+"
"""The last line of a traceback of Python"""


class PipelineError(Error):
    """Raised when a job on Spark cannot do what was asked; one sentence says why, and what to do.

    Out of a query of Spark it comes as Spark's own exception, whose text holds that sentence.
    """


def reason(error: Exception) -> str:
    """What one of our own errors said that Spark has wrapped in Java's stack and its own; else its first line."""
    text = str(error)
    said = re.findall(r"(?:PipelineError|Store\w+|Log\w+): (.+)", text) or re.findall(RAISED, text, re.MULTILINE)
    return str(said[-1]) if said else text.split("\n", 1)[0]


def nearest(given: str, known: Iterable[str]) -> str:
    """Which of the known words is most like the one that was given, whatever their case."""
    by_lower = {each.lower(): each for each in known}
    return by_lower[difflib.get_close_matches(given.lower(), sorted(by_lower), n=1, cutoff=0.0)[0]]
