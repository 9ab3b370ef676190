"""How much memory processes have for themselves: what a limit of ours must bound, without files that are mapped."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

WATCH_SECONDS = 0.1


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process. Raises OSError if it does not run."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, "the kernel does not tell"
    return int(found[1]) * 1024


class MemoryWatch(threading.Thread):
    """Looks at processes again and again; a context manager. ``growth``: the most that any of them has grown by."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._began = {pid: anonymous_bytes(pid) for pid in pids}
        self._ended = threading.Event()
        self.growth = 0
        self.highest = max(self._began.values())

    def __enter__(self) -> MemoryWatch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Look, until the watch is over."""
        while not self._ended.wait(WATCH_SECONDS):
            for pid, began in self._began.items():
                now = anonymous_bytes(pid)
                self.growth = max(self.growth, now - began)
                self.highest = max(self.highest, now)
