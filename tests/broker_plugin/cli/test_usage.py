"""A command line that cannot be is told in one sentence, which says where to read what can be; nothing is done."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import typer

from broker_plugin.cli import commands
from tests.support.commands import txha_here


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("frobnicate", "no such command 'frobnicate'; see `txha --help`"),
        ("member ad", "no such command 'ad' (Did you mean 'add'?); see `txha member --help`"),
        ("member add", "missing argument 'NAME'; see `txha member add --help`"),
        ("status --jsn", "no such option: --jsn (Possible options: --json); see `txha status --help`"),
        ("tx list", "missing option '--dir'; see `txha tx list --help`"),
        ("tx list --dir x y", "got unexpected extra argument(s) (y); see `txha tx list --help`"),
        ("promote --timeout soon", "invalid value for '--timeout': Input should be a valid number"),
    ],
)
def test_one_sentence_and_where_to_read(words: str, sentence: str) -> None:
    done = txha_here(*words.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"txha: {sentence}") and done.stderr.endswith(" --help`\n")


def test_a_group_alone_shows_its_help() -> None:
    done = txha_here("member")
    assert done.returncode == 2 and "Usage: txha member" in done.stdout and not done.stderr


def test_help_and_what_a_command_ends_with() -> None:
    assert txha_here("member", "--help").returncode == 0
    assert txha_here("--help").returncode == 0


@pytest.mark.parametrize(
    ("raised", "status", "told"),
    [(typer.Exit(3), 3, ""), (typer.Abort(), 1, "txha: aborted\n"), (KeyboardInterrupt(), 130, "")],
)
def test_what_ends_a_command(raised: BaseException, status: int, told: str) -> None:
    nodes = patch.object(commands, "nodes_shown", lambda *_: [1])
    with nodes, patch.object(commands, "node_status", side_effect=raised):
        done = txha_here("status", "--dir", ".")
    assert (done.returncode, done.stderr) == (status, told)
