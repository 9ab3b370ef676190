"""Modules as machine code, where they have been built: whether that is so, and how a process comes to use them.

mypyc translates the very sources that are there, so there is one program and two ways to run it
(docs/decisions/compiled-core.md). ``broker_plugin.compiled`` says which modules are built.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
INSTALLED = ROOT / "txha_compiled"
"""Where a wheel carries what was built with it. A checkout has no such directory."""
BUILT = INSTALLED if INSTALLED.is_dir() else ROOT / "build" / "compiled"
"""Where compiled modules are looked for, and where ``make install`` puts them."""
FINGERPRINTS = "fingerprints.json"
"""The file that a build ends with: of each module what it was built from."""

ABI = str(sysconfig.get_config_var("SOABI"))
"""What compiled modules have in their names, for example cpython-311-x86_64-linux-gnu"""

SWITCH = "TXHA_CORE"
"""``pure`` in this environment variable: the plain modules run, whatever has been built."""


def source_of(module: str) -> Path:
    """The file of a module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def fingerprints(modules: Iterable[str]) -> dict[str, str]:
    """Of each module what changes with its source and with what machine code depends on. Raises OSError.

    The latter is the ABI, so that a wheel which was built by one Python 3.11 runs compiled in each Python 3.11.
    """
    python = ABI.encode()
    return {module: hashlib.sha256(python + source_of(module).read_bytes()).hexdigest() for module in modules}


def available(modules: Sequence[str]) -> bool:
    """Whether these modules have been built, all of them from the sources that are there."""
    if os.environ.get(SWITCH) == "pure":
        return False
    try:
        built: dict[str, str] = json.loads((BUILT / FINGERPRINTS).read_text())
        return fingerprints(modules).items() <= built.items()
    except (OSError, ValueError):
        return False


def use(modules: Sequence[str]) -> None:
    """Let this process run the compiled modules, if they are there. RuntimeError if it has loaded a plain one."""
    if not available(modules):
        return
    loaded = [module for module in modules if module in sys.modules]
    if loaded:
        raise RuntimeError(f"{loaded[0]} has been loaded already")
    sys.meta_path.insert(0, _Finder(modules))


def in_use(modules: Iterable[str]) -> bool:
    """Whether this process runs these modules compiled."""
    return any(finder.names >= set(modules) for finder in sys.meta_path if isinstance(finder, _Finder))


def load(module: str) -> ModuleType:
    """A module, compiled if it has been built and this process has not loaded the plain one before."""
    if module not in sys.modules:
        use([module])
    return import_module(module)


class _Finder(MetaPathFinder):
    """Finds the compiled modules, and the library that they share, before Python looks for their sources."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.names = {path.name.partition(".")[0] for path in BUILT.glob("*__mypyc*")} | set(modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.names:
            return None
        return PathFinder.find_spec(name, [str(BUILT.joinpath(*name.split(".")[:-1]))])
