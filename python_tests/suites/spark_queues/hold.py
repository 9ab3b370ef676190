"""Hold: one process at a time waits at a step of the sink or the source until it is let go on, or killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from python_tests.harness.waiting import wait_until


class Hold:
    """``directory`` is what the processes have in TXHA_SPARK_HOLD (``recovery.pipeline.queues.steps``)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self._count = 0

    def ask(self, step: str) -> None:
        """From now on, the first process that comes to this step waits there."""
        self._count += 1
        (self.directory / "held").unlink(missing_ok=True)
        (self.directory / "new").write_text(f"{step}\n{self._go.name}")
        (self.directory / "new").rename(self.directory / "wanted")

    def held(self, seconds: float, job: subprocess.Popen[bytes]) -> int:
        """The process that waits, as soon as there is one. Raises TimeoutError, also if the job has ended without."""
        held = self.directory / "held"
        wait_until(lambda: held.exists() or job.poll() is not None, seconds, "a process at the step")
        if not held.exists():
            raise TimeoutError("the job has ended, and no process came to the step")
        return int(held.read_text())

    def let_go(self) -> None:
        """It goes on, if it lives."""
        self._go.touch()

    @property
    def _go(self) -> Path:
        return self.directory / f"go-{self._count}"
