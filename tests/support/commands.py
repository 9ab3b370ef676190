"""``txha`` in the process of the test: an interpreter of its own costs a command half a second of a processor."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from broker_plugin.cli.commands import command_line

OF_A_PROCESS = ("node", "cluster", "--version")
"""What runs nodes, or tells how its process began"""


def txha_here(*words: str) -> subprocess.CompletedProcess[str]:
    """What a command answers that nobody answers, as ``subprocess.run`` tells it; none of ``OF_A_PROCESS``."""
    assert words[0] not in OF_A_PROCESS
    out, errors, status = io.StringIO(), io.StringIO(), 0
    given = patch.multiple(sys, argv=["txha", *words], stdin=io.StringIO())
    with given, redirect_stdout(out), redirect_stderr(errors):
        try:
            command_line()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    return subprocess.CompletedProcess(["txha", *words], status, out.getvalue(), errors.getvalue())
