"""What a command shows: names are no markup, no line end, no sequence for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.table import Table

from broker_plugin.cli import tables
from broker_plugin.cli.terminal import PlainConsole, say

HOSTILE = "\x1b]0;pwned\x07[bold]$\\frac{$ :smile:\nforged\u202e"
SHOWN = r"\x1b]0;pwned\x07[bold]$\frac{$ :smile:\nforged\u202e"

NODE = {
    "name": HOSTILE,
    "state": "active",
    "generation": 3,
    "ready": True,
    "open_transactions": 0,
    "prepared_transactions": 0,
    "backups": {HOSTILE: {"lag_events": 7}},
    "core": HOSTILE,
    "shortage": HOSTILE,
    "unsupported": {HOSTILE: ["x-message-ttl"]},
}
TABLES: list[Callable[[], None]] = [
    lambda: tables.status_table([NODE]),
    lambda: tables.status_table([{**NODE, "state": HOSTILE}]),
    lambda: tables.transactions_table(
        HOSTILE, [{"id": "0-1", "state": "open", "events": 1, "queues": [HOSTILE], "participants": [HOSTILE]}]
    ),
    lambda: tables.branches_table([{"xid": HOSTILE, "state": "prepared", "enqueues": {HOSTILE: 1}}]),
    lambda: tables.recovered_table([dict.fromkeys(("branch", "resource", "decision", "state", "why"), HOSTILE)]),
    lambda: tables.left_by_spark_table([dict.fromkeys(("query", "batch", "branch", "state"), HOSTILE)]),
]


@pytest.mark.parametrize("show", TABLES)
def test_tables_show_names_as_they_are(
    show: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "900")
    monkeypatch.setenv("FORCE_COLOR", "1")
    show()
    out = capsys.readouterr().out
    assert SHOWN in out and "\x1b]" not in out and "\x07" not in out and "\nforged" not in out and "\u202e" not in out


def test_titles_captions_and_lines_of_a_console_are_texts_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    console: Any = PlainConsole(900)
    console.print(table)
    console.print(HOSTILE)
    assert capsys.readouterr().out.count(SHOWN) == 4


@pytest.mark.parametrize("beside", [False, True])
def test_a_line_is_one_line(beside: bool, capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE, beside)
    out, err = capsys.readouterr()
    assert (err if beside else out) == SHOWN + "\n" and not (out if beside else err)


def test_many_queues_with_arguments_without_effect_do_not_fill_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    queues = {f"q{number:03}": ["x-expires", "x-message-ttl"] for number in range(100)}
    tables.status_table([{**NODE, "unsupported": queues}])
    out = capsys.readouterr().out
    assert "queue 'q019' was declared with x-expires, x-message-ttl, which has no effect here" in out
    assert "q020" not in out and "and 80 more queues; --json tells all" in out
