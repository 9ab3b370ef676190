"""The connection on which branches are worked on is opened as the application, its DSN or its environment says."""

from __future__ import annotations

import psycopg
import pytest

from recovery.coordinator.branch_session import BranchSession
from recovery.coordinator.resources import ResourceLost


@pytest.mark.parametrize(
    ("dsn", "options", "environment", "expected"),
    [
        ("dbname=bank", {}, "", 10),
        ("dbname=bank connect_timeout=77", {}, "", None),
        ("postgresql://127.0.0.1/bank?connect_timeout=77", {}, "", None),
        ("dbname=bank", {}, "77", None),
        ("dbname=bank connect_timeout=77", {"connect_timeout": 5}, "77", 5),
    ],
)
def test_how_long_a_connection_may_take_to_come(
    dsn: str, options: dict[str, int], environment: str, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DSN's ``connect_timeout`` had no effect. None: libpq is left to find what was given."""
    asked: list[object] = []

    def connect(given: str, **options: object) -> None:
        asked.append(options.get("connect_timeout"))
        raise psycopg.OperationalError("nothing listens")

    monkeypatch.setattr(psycopg, "connect", connect)
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    if environment:
        monkeypatch.setenv("PGCONNECT_TIMEOUT", environment)
    with pytest.raises(ResourceLost, match="nothing listens"):
        BranchSession(dsn, options).open()
    assert asked == [expected]
