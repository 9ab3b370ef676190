"""A process that is made to die says where, and dies as of SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = (
    "from recovery.store.crash_points import crash_point; [crash_point('log.synced') for _ in range(3)]; print('alive')"
)


@pytest.mark.parametrize(("asked", "dies"), [("log.synced", True), ("log.synced:3", True), ("log.synced:4", False)])
def test_a_process_dies_at_the_point_that_was_asked_for(asked: str, dies: bool) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PASSES],
        env=os.environ | {"TXHA_CRASH_POINT": asked, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == (-signal.SIGKILL if dies else 0)
    assert found.stderr == ("crash point log.synced\n" if dies else "") and found.stdout == ("" if dies else "alive\n")
