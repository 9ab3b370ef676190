"""DoorProcess: the process that answers operators by HTTP, beside the node.

Promise: whatever becomes of that process, the node goes on, and it starts also where its door cannot be opened; and the
process outlives the node by no more than it takes to see that the node is gone. It holds no state: it is started again,
after longer and longer pauses while it does not stay or its ports are taken, and asks the node for everything, over the
administration's port. What it is told goes through its input, so that no list of processes shows it, and it ends when
that does. Starting it takes a thread: a disk that hangs holds up no turn of the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
from contextlib import suppress

from broker_plugin.coordination.coordination_process import MODULE, environment_of_child
from broker_plugin.guard import Guard
from broker_plugin.logs.formats import tell
from broker_plugin.logs.http_events import HttpDoorEnded, HttpDoorUnstarted
from broker_plugin.node.config import NodeConfig
from broker_plugin.node.ports import why_shut
from broker_plugin.tls.told import READ, UNDO

log = logging.getLogger("txha.http")
LOOK_SECONDS = 0.2
"""Between two looks whether the process is there."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds before a process that has ended gets a successor: each time twice as long."""
STEADY_SECONDS = 60.0
"""One that has lived so long counts as one that stays."""
END_SECONDS = 1.0
"""In which a process that was killed is waited for."""


class DoorProcess:
    """Of a node with this configuration, which names ``http``."""

    def __init__(self, guard: Guard, config: NodeConfig, module: str = "broker_plugin.http.main") -> None:
        self._guard = guard
        assert config.http is not None
        self._addresses = config.http.addresses
        self._command = [*MODULE, module]
        self._told = told(config)
        self._child: subprocess.Popen[bytes] | None = None
        self._starting = self._stopped = False
        self._pause = FIRST_PAUSE
        self._started_at = self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unopened: str | None = None

    @property
    def complaint(self) -> str | None:
        """Why the door is not open, in one sentence for operators; None if its process runs, or begins for the first
        time."""
        return None if self._unopened is None else f"the door is not open: {self._unopened}"

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        """Begin to look after it."""
        self._look()

    def certificates_changed(self, read: bool) -> None:
        """The node has read its certificates again, or goes back to what was in force before (``http.main``)."""
        if self._child is not None and self._child.stdin is not None:
            with suppress(OSError):  # it has ended: the next one reads what stands in the files
                self._child.stdin.write(READ if read else UNDO)

    def stop(self) -> None:
        """End it."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        child, self._child = self._child, None
        if child is not None:
            _end(child)

    def _look(self) -> None:
        self._timer = self._guard.call_later(LOOK_SECONDS, self._look)
        now = self._guard.loop.time()
        if self._child is not None and (status := self._child.poll()) is not None:
            if now - self._started_at >= STEADY_SECONDS:
                self._pause = FIRST_PAUSE
            tell(log, logging.WARNING, HttpDoorEnded(self._child.pid, status, self._pause))
            self._unopened = f"its process has ended with status {status}"
            _end(self._child)
            self._child = None
            self._wait(now)
        if self._child is None and not self._starting and now >= self._next:
            self._starting = True
            self._guard.run_in_executor(None, self._begin, self._begun)

    def _wait(self, now: float) -> None:
        self._next = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _begin(self) -> subprocess.Popen[bytes] | str:
        """In a thread. A session of its own: a signal to all of a terminal is the node's to answer.

        What listens where the door should may be the door of this node's former process, if that was killed and the
        door has been stopped; so the ports are looked at before each start.
        """
        if (why := why_shut(self._addresses)) is not None:
            return why
        try:
            child = subprocess.Popen(
                self._command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=environment_of_child(os.environ),
            )
        except OSError as error:
            return error.strerror or str(error)
        assert child.stdin is not None
        with suppress(OSError):  # it has ended already, which is seen at the next look
            child.stdin.write(self._told)
        return child

    def _begun(self, future: asyncio.Future[subprocess.Popen[bytes] | str]) -> None:
        self._starting = False
        found, now = future.result(), self._guard.loop.time()
        if isinstance(found, str):
            if found != self._unopened:  # else it has been told, and nothing has changed
                tell(log, logging.WARNING, HttpDoorUnstarted(found, self._pause))
            self._unopened = found
            self._wait(now)
        elif self._stopped:
            _end(found)
        else:
            self._child, self._started_at, self._unopened = found, now, None


def told(config: NodeConfig) -> bytes:
    """A line of JSON: what the process has to know."""
    assert config.http is not None
    said = {
        **config.http.model_dump(),
        "node": config.name,
        "directory": str(config.dir.absolute()),
        "log_level": config.log_level,
        "log_format": config.log_format,
        "files": [] if config.tls is None else [str(path.absolute()) for path in config.tls.files],
    }
    return json.dumps(said).encode() + b"\n"


def _end(child: subprocess.Popen[bytes]) -> None:
    """It holds nothing, so it is not asked."""
    child.kill()
    if child.stdin is not None:
        child.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(END_SECONDS)
