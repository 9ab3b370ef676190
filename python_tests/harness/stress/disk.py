"""A small file system for one node's directory, that can be made full at a moment's notice and roomy again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from python_tests.harness.stress.namespaces import NetworkError, run, why_not

SIZE = 8 << 30
"""Bytes that it may grow to. It lies in memory, and takes only what is in it."""


class SmallDisk:
    """A tmpfs at ``directory``. Full means: it may not grow beyond what is in it now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @staticmethod
    def why_not() -> str | None:
        """What is missing for it on this machine, None if nothing is."""
        return why_not()

    def mount(self) -> None:
        """Put it there; what is in the directory goes along. Raises NetworkError, OSError."""
        aside = self.directory.with_name(self.directory.name + ".aside")
        self.directory.rename(aside)
        self.directory.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(self.directory))
        try:
            shutil.copytree(aside, self.directory, dirs_exist_ok=True)
            shutil.rmtree(aside)
        except BaseException:  # a signal, too: nothing else knows of it yet
            run("umount", str(self.directory))
            raise

    def fill(self) -> None:
        """No room from now on; a filler takes the last bytes. Raises NetworkError."""
        self._leave_little()
        with (self.directory / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(os.sysconf("SC_PAGE_SIZE")))
            except OSError:
                return

    def _leave_little(self) -> None:
        """Take the free space of the disk away. Other processes use it, and may write more than was measured."""
        for little in (1 << 20, 8 << 20, 64 << 20):
            try:
                self._resize(self._used() + little)
                return
            except NetworkError:
                if little == 64 << 20:
                    raise

    def free(self) -> None:
        """Room again. Raises NetworkError."""
        self._resize(SIZE)
        (self.directory / "filler").unlink(missing_ok=True)

    def unmount(self) -> None:
        """Take it away; what is in it stays behind in the directory. Raises NetworkError, OSError."""
        aside = self.directory.with_name(self.directory.name + ".aside")
        shutil.copytree(self.directory, aside)
        run("umount", str(self.directory))
        self.directory.rmdir()
        aside.rename(self.directory)

    def _used(self) -> int:
        found = os.statvfs(self.directory)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _resize(self, size: int) -> None:
        run("mount", "-o", f"remount,size={size}", str(self.directory))
