"""The fault of a lost coordination file does what it says, whatever nodes write meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CoordinationError, Record
from python_tests.harness.stress.record_faults import damage


def test_a_write_under_way_does_not_make_a_damaged_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "coordination.sqlite"
    node = SqliteCoordination(path, "orders", create=True)
    first = node.compare_and_set(0, Record("orders", 0, 1, None, ()))
    fault = threading.Thread(target=damage, args=(path,))
    checksummed = msgspec.json.encode

    def while_it_writes(record: Record) -> bytes:
        fault.start()
        fault.join(0.5)  # it waits for the lock; else it is done by then
        return checksummed(record)

    monkeypatch.setattr("broker_plugin.coordination.sqlite_coordination.msgspec.json.encode", while_it_writes)
    node.compare_and_set(first.version, msgspec.structs.replace(first, released=True))
    fault.join()
    with pytest.raises(CoordinationError, match="damaged"):
        node.read()
