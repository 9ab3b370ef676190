"""What nodes write to their logs goes to the transcript, if it is wanted, and nowhere else."""

from __future__ import annotations

import logging
import warnings
from asyncio.events import _get_running_loop
from collections.abc import Generator
from contextlib import contextmanager

from tests.simulation.loop import SimLoop
from tests.simulation.world import World

LOGGER = logging.getLogger("txha")


class _ToTranscript(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        loop = _get_running_loop()
        self._world.say(loop.name if isinstance(loop, SimLoop) else "?", record.getMessage())


@contextmanager
def logs_into(world: World) -> Generator[None]:
    """For as long as this is open."""
    before = LOGGER.level, LOGGER.propagate
    handler = _ToTranscript(world)
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO if world.transcript is not None else logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # by a process that was killed
            yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.propagate = before[1]
        LOGGER.setLevel(before[0])
