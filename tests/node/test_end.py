"""What a node says at its end, and its exit status."""

from __future__ import annotations

import logging

import pytest

from broker_plugin.node import main
from broker_plugin.node.main import ended


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
    monkeypatch.setattr(main.os, "_exit", ends.append)
    monkeypatch.setattr(main.logging, "shutdown", lambda: None)
    ended(failure, "the disk hangs")
    assert ends == [1]
    assert [each.getMessage() for each in caplog.records] == [*([failure] if failure else []), "the disk hangs"]
