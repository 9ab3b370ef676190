"""Whom ``txha recover`` takes for a primary that renews its lease: who changes the record, not who changes its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.recovery import recovering
from broker_plugin.cli.recovery.recovering import read_record
from broker_plugin.coordination.address import in_file
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from recovery.planner.facts import RecordState
from recovery.planner.lease import LeaseWatch
from recovery.planner.site import look
from tests.broker_plugin.cli.recovery.test_recover_again import DONE, MISSING_A, A, becomes, damage, directory, recover
from txobserver.ports.store import StoreError

__all__ = ["directory"]


def record_of(directory: Path) -> Path:
    return directory / "coordination.sqlite"


def watched(directory: Path) -> LeaseWatch:
    record = in_file(record_of(directory))
    return LeaseWatch(record, partial(read_record, record, "cluster"))


def tries_to_start(directory: Path) -> None:
    """What a node's process does with the record before it opens its store, which another process has locked."""
    before = record_of(directory).read_bytes()
    store = SqliteCoordination(record_of(directory), "cluster", confirm=True)
    store.read()
    store.close()
    assert record_of(directory).read_bytes() != before


def renews(directory: Path) -> None:
    becomes(directory)


def test_a_node_that_is_refused_looks_like_a_primary(directory: Path) -> None:
    watch = watched(directory)
    tries_to_start(directory)
    watch.check(0.0)
    renews(directory)
    with pytest.raises(StoreError, match="a primary renews its lease"):
        watch.check(0.0)


@pytest.mark.parametrize("does", [tries_to_start, renews])
def test_a_plan_is_applied_while_supervisors_try_to_start_nodes(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], does: Callable[[Path], None]
) -> None:
    damage(directory)

    def meanwhile(*given: Any) -> Any:
        does(directory)
        return look(*given)

    monkeypatch.setattr(recovering, "look", meanwhile)
    if does is renews:
        with pytest.raises(StoreError, match="a primary renews its lease"):
            recover(directory, capsys, MISSING_A)
        assert not (directory / DONE).exists()
    else:
        assert recover(directory, capsys, MISSING_A)["applied"] == str(directory / DONE)


def test_a_primary_of_a_later_version_is_noticed_though_its_record_cannot_be_read(directory: Path) -> None:
    connection = sqlite3.connect(record_of(directory), isolation_level=None)
    connection.execute("PRAGMA user_version=99")
    watch = watched(directory)
    assert watch.found[1] is RecordState.DAMAGED
    connection.execute("UPDATE record SET version = version + 1")
    connection.close()
    with pytest.raises(StoreError, match="a primary renews its lease"):
        watch.check(0.0)


def test_a_record_that_appears_meanwhile_is_noticed(directory: Path) -> None:
    record_of(directory).rename(directory / "away")
    watch = watched(directory)
    assert watch.found == (None, RecordState.GONE, "")
    watch.check(0.0)
    (directory / "away").rename(record_of(directory))
    assert becomes(directory).primary == A
    with pytest.raises(StoreError, match="a primary renews its lease"):
        watch.check(0.0)
