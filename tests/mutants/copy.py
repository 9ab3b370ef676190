"""Scratch copies of the project: nothing is ever mutated where it is kept."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutants.hits import FILE as HITS
from tests.mutants.mutation import Mutation
from tests.mutants.scope import COPIED

NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")

_running: dict[int, subprocess.Popen[str]] = {}
_stopping = threading.Event()


class Stopped(Exception):
    """The run ends before its time: nothing more is started, and what has been found meanwhile means nothing."""


def stop_all() -> None:
    """End all that runs, and start nothing more. For the end of this process only."""
    _stopping.set()
    for process in list(_running.values()):
        end(process)


def stopping() -> bool:
    """Whether ``stop_all`` has been called."""
    return _stopping.is_set()


@contextmanager
def scratch_copy(root: Path) -> Iterator[Path]:
    """A copy in a temporary directory, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="txha-mutants-") as name:
        copy = Path(name) / "project"
        copy.mkdir()
        for each in COPIED:
            if (root / each).is_dir():
                shutil.copytree(root / each, copy / each, ignore=NOT_COPIED)
            elif (root / each).exists():
                shutil.copy2(root / each, copy / each)
        compileall.compile_dir(str(copy), quiet=2)
        try:
            yield copy
        finally:
            _unmount(Path(name))


@contextmanager
def mutated(copy: Path, mutation: Mutation) -> Iterator[None]:
    """The copy holds this mutation meanwhile."""
    path = copy / mutation.path
    source = path.read_text()
    try:
        _write(path, mutation.apply(source))
        yield
    finally:
        _write(path, source)


def start(copy: Path, module: str, *arguments: str, hits: Path | None = None) -> subprocess.Popen[str]:
    """Run a module of the copy in a process group of its own, with plain modules. Raises Stopped."""
    if stopping():
        raise Stopped
    environment = {**os.environ, "PYTHONPATH": str(copy), "TXHA_CORE": "pure", "PYTHONHASHSEED": "0"}
    environment |= {"TMPDIR": str(copy.parent), HITS: str(hits)} if hits else {"TMPDIR": str(copy.parent)}
    command = [sys.executable, "-m", module, *arguments]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=copy, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, text=True, start_new_session=True
    )
    _running[process.pid] = process
    return process


def end(process: subprocess.Popen[str]) -> None:
    """End what ``start`` began, with all that it has started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.pop(process.pid, None)


def _unmount(directory: Path) -> None:
    """A test that was ended in the middle may have left a file system mounted."""
    for line in Path("/proc/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(f"{directory}/"):
            subprocess.run(["umount", place], check=False, capture_output=True)


def _write(path: Path, source: str) -> None:
    """A module compiled in the same second, of the same length, would pass for this one."""
    path.write_text(source)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink(missing_ok=True)
