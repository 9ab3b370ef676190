"""Hold: one process at a time waits at a step of the sink or the source until it is let go on, or killed."""

from __future__ import annotations

from pathlib import Path

from python_tests.waiting import wait_until


class Hold:
    """``directory`` is what the processes have in TXHA_SPARK_HOLD (``recovery.pipeline.queues.steps``)."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self._count = 0

    def ask(self, step: str) -> None:
        """From now on, whoever comes to this step first waits there."""
        self._count += 1
        (self.directory / "held").unlink(missing_ok=True)
        (self.directory / "new").write_text(f"{step}\n{self._go.name}")
        (self.directory / "new").rename(self.directory / "wanted")

    def held(self, seconds: float) -> int:
        """The process that waits, as soon as there is one. Raises TimeoutError."""
        held = self.directory / "held"
        wait_until(held.exists, seconds, "somebody to come to the step", every=0.02)
        return int(held.read_text())

    def let_go(self) -> None:
        """It goes on, if it lives."""
        self._go.touch()

    @property
    def _go(self) -> Path:
        return self.directory / f"go-{self._count}"
