"""The hot path as machine code, where it has been built: which modules that is, and how a process comes to use them.

mypyc translates the very sources that are there, so there is one program and two ways to run it. ``use`` makes this
process take the translated modules; without it, without a build, or with one of other sources, the plain ones run
(docs/decisions/compiled-core.md).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "compiled"
FINGERPRINT = BUILT / "fingerprint"
"""The file that a build ends with: what it was built from."""

SWITCH = "TXHA_CORE"
"""``pure`` in this environment variable: the plain modules run, whatever has been built."""

MODULES = (
    *(f"txobserver.{name}" for name in ("contents", "digest", "observer", "places", "tx_buffer")),
    *(f"ha.{name}" for name in ("applied", "backlog", "backup", "backups", "candidate", "checkpointing", "history")),
    *(f"ha.{name}" for name in ("node_core", "pace", "primary", "queue_guard", "queue_replicator", "recent_frames")),
    *(f"ha.{name}" for name in ("record_keeper", "replica", "replicating_subscription", "resync", "session")),
    *(f"ha.{name}" for name in ("transactions", "tx_tracker")),
    *(f"broker_plugin.embedded.{name}" for name in ("broker", "channel", "confirms", "consumer", "durable_queue")),
    *(f"broker_plugin.embedded.{name}" for name in ("local_queue", "queue", "session", "transaction", "turn")),
    *(f"broker_plugin.embedded.{name}" for name in ("branch", "unit_of_work")),
    *(f"broker_plugin.amqp.{name}" for name in ("channel", "codec", "connection")),
)
"""What a message passes on its way, and whatever those classes inherit from."""


def source_of(module: str) -> Path:
    """The file of a module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def fingerprint() -> str:
    """Changes with the sources and with the interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for module in MODULES:
        digest.update(source_of(module).read_bytes())
    return digest.hexdigest()


def available() -> bool:
    """Whether a node that is started now would run compiled."""
    if os.environ.get(SWITCH) == "pure":
        return False
    try:
        return FINGERPRINT.read_text() == fingerprint()
    except OSError:
        return False


def use() -> None:
    """Let this process run the compiled modules, if they are there. RuntimeError if it has loaded a plain one."""
    if not available():
        return
    loaded = [module for module in MODULES if module in sys.modules]
    if loaded:
        raise RuntimeError(f"{loaded[0]} has been loaded already")
    sys.meta_path.insert(0, _Finder())


def running() -> str:
    """What this process runs: ``compiled`` or ``pure``."""
    return "compiled" if any(isinstance(finder, _Finder) for finder in sys.meta_path) else "pure"


class _Finder(MetaPathFinder):
    """Finds the compiled modules, and the library that they share, before Python looks for their sources."""

    def __init__(self) -> None:
        libraries = {path.name.partition(".")[0] for path in BUILT.glob("*__mypyc*")}
        self._names = libraries | set(MODULES)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        return PathFinder.find_spec(name, [str(BUILT.joinpath(*name.split(".")[:-1]))])
