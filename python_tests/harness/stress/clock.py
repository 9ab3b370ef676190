"""A wall clock for each node that can be moved while it runs, by libfaketime. The monotonic clocks are left alone."""

from __future__ import annotations

from pathlib import Path

LIBRARY = "libfaketimeMT.so.1"
PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")


def library() -> Path | None:
    """Where libfaketime is, None if it is not installed."""
    return next((found for place in PLACES for found in Path("/").glob(f"{place[1:]}/{LIBRARY}")), None)


class FakeClock:
    """The clocks of nodes; ``directory`` holds a file for each with how far it is off."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @staticmethod
    def why_not() -> str | None:
        """What is missing for it on this machine, None if nothing is."""
        return None if library() else f"moving a clock takes {LIBRARY}; on Debian: apt-get install faketime"

    def environment(self, node: str) -> dict[str, str]:
        """What a process needs in its environment to live by this node's clock."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file(node).touch()
        if not self._file(node).read_text():
            self.move(node, 0)
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file(node)),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else version 0.9.10 takes monotonic times of waits for wall times
        }

    def move(self, node: str, seconds: int) -> None:
        """That node's clock is off by so much, within a second."""
        new = self._file(node).with_suffix(".new")
        new.write_text(f"{seconds:+d}")
        new.rename(self._file(node))

    def shift(self, node: str, seconds: int) -> None:
        """That node's clock is off by so much more, within a second: several may do so, and each take its part back."""
        self.move(node, int(self._file(node).read_text()) + seconds)

    def _file(self, node: str) -> Path:
        return self._directory / node
