"""What a node says at its end, and its exit status."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from broker_plugin.node import ending
from broker_plugin.node.ending import ended


def test_a_node_that_was_told_to_end_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert ended(None, None) == 0 and not caplog.records


def test_a_node_that_failed_says_why(caplog: pytest.LogCaptureFixture) -> None:
    assert ended("no space left", None) == 1
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.ERROR, "no space left")]


@pytest.mark.parametrize("failure", [None, "the queue state failed"])
def test_a_node_whose_disk_hangs_says_both_and_ends_at_once(
    failure: str | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads would hold up any other end."""
    ends: list[int] = []
    monkeypatch.setattr(ending.os, "_exit", ends.append)
    monkeypatch.setattr(ending.logging, "shutdown", lambda: None)
    ended(failure, "the disk hangs")
    assert ends == [1]
    assert [each.getMessage() for each in caplog.records] == [*([failure] if failure else []), "the disk hangs"]


HANGING = """
import asyncio, os
from broker_plugin.node import ending, main
ending.CLOSE_SECONDS = 0.2
reading, writing = os.pipe()

class Node:
    async def run(self):
        {thread}
        return 0

raise SystemExit(main.uvloop.run(main._run(Node())))
"""


@pytest.mark.parametrize(
    ("thread", "status"), [("pass", 0), ("asyncio.get_running_loop().run_in_executor(None, os.read, reading, 1)", 1)]
)
def test_a_node_ends_also_while_a_read_of_its_disk_hangs(thread: str, status: int) -> None:
    """``end_waits_for_a_read``: the interpreter's own end waits for its threads, for as long as that takes."""
    found = subprocess.run(
        [sys.executable, "-c", HANGING.format(thread=thread)], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == status
    assert ("has waited for its disk" in found.stderr) == bool(status)
