"""What a command shows: names are no markup, no line end, no sequence for the terminal; and output that has no room."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from rich.table import Table

from broker_plugin.cli import tables
from broker_plugin.cli.terminal import PlainConsole, say, whole_output

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


def test_a_door_that_is_not_open_is_shown_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    said = "the door is not open: cannot listen for operators on 127.0.0.1:15672: the address is in use"
    tables.status_table([{**NODE, "name": "a", "door_error": said}, {**NODE, "name": "b", "door_error": None}])
    assert capsys.readouterr().out.count("the door is not open") == 1


def test_nodes_of_different_versions_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of an upgrade; 0.1.0 does not tell its version, and of a node that is down none is known."""
    newer, older, down = {**NODE, "name": "a", "version": "0.2.0"}, {**NODE, "name": "b"}, {**NODE, "name": "c"}
    tables.status_table([older, {**newer, "version": "0.2.0"}, {**down, "state": "down"}])
    assert "\nversions: a 0.2.0, b 0.1.0\n" in capsys.readouterr().out
    tables.status_table([newer, {**newer, "name": "b"}, {**down, "state": "down"}])
    assert "versions" not in capsys.readouterr().out


def test_many_queues_with_arguments_without_effect_do_not_fill_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    queues = {f"q{number:03}": ["x-expires", "x-message-ttl"] for number in range(100)}
    tables.status_table([{**NODE, "unsupported": queues}])
    out = capsys.readouterr().out
    assert "queue 'q019' was declared with x-expires, x-message-ttl, which has no effect here" in out
    assert "q020" not in out and "and 80 more queues; --json tells all" in out


def told(output: IO[bytes] | int, *words: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, whose standard output is this file."""
    command = [sys.executable, "-m", "broker_plugin.cli.main", *words]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, timeout=60)


def test_output_for_which_there_is_no_room_is_told_in_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        found = told(full, "limits", "--help")
    assert (found.returncode, found.stderr) == (
        1,
        b"txha: the output cannot be written: No space left on device\n",
    )


def test_who_closes_the_pipe_has_read_what_he_wanted() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    found = told(writing, "limits", "--help")
    os.close(writing)
    assert (found.returncode, found.stderr) == (1, b"")


def test_the_ends_of_children_are_waited_for_where_a_supervisor_ignores_them() -> None:
    """With SIGCHLD ignored no store could be checked, and no node started."""
    program = (
        "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.argv = ['txha', '--version']\n"
        "from broker_plugin.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print(signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines()[-1] == "True", done.stderr


def test_an_error_of_another_file_is_not_one_of_the_output() -> None:
    with pytest.raises(OSError, match="No space"), whole_output():
        raise OSError(errno.ENOSPC, "No space left on device", "/a/file")
    with pytest.raises(ConnectionRefusedError), whole_output():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
