"""A server of a test's own as a child process, in a session of its own, with what it says in a file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def start_server(command: Sequence[str], log: Path, user: str | None) -> subprocess.Popen[bytes]:
    """Start it as this user (None: the user that runs the tests); what it says is appended to ``log``."""
    with log.open("ab") as output:
        return subprocess.Popen(command, user=user, cwd="/", stdout=output, stderr=output, start_new_session=True)


def check_runs(server: subprocess.Popen[bytes], name: str, log: Path) -> None:
    """Raises RuntimeError, with the end of what it has said, for a server that has ended."""
    if server.poll() is not None:
        raise RuntimeError(f"{name} ended: {log.read_text()[-500:]}")
