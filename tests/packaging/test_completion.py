"""Shell completion: the scripts that the command prints complete its commands and options in a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TXHA = 'import sys; sys.argv[0] = "txha"; from broker_plugin.cli.main import main; main()'


def txha(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TXHA], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    assert "_TXHA_COMPLETE" in txha(_TXHA_COMPLETE=f"source_{shell}")


@pytest.mark.parametrize(
    ("typed", "completed"), [("txha sta", "status"), ("txha hash", "hash-password"), ("txha status --re", "--ready")]
)
def test_bash_completes(tmp_path: Path, typed: str, completed: str) -> None:
    command = tmp_path / "txha"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{TXHA}' \"$@\"\n")
    command.chmod(0o755)
    words = typed.split()
    script = (
        'eval "$(_TXHA_COMPLETE=source_bash txha)"\n'
        f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; COMP_LINE='{typed}'; COMP_POINT={len(typed)}\n"
        'function=$(complete -p txha | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        '$function txha; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed in done.stdout.split(), done
