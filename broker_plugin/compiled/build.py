"""``python -m broker_plugin.compiled.build``: translate the hot path with mypyc, for ``make install`` and wheels.

Needs mypy and a C compiler. Where there is none, it says so in one line, and the plain modules run.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mypyc.build import mypycify
from setuptools import Distribution
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

from broker_plugin.compiled import APART, MODULES
from recovery.compiled import BUILT, FINGERPRINTS, ROOT, fingerprints, source_of

OPTIMISE = "2"
IMPOSSIBLE = (CompileError, LinkError, PlatformError)


class BuildSideBySide(build_ext):  # type: ignore[misc]
    """Compiles the files of one extension side by side. What it derives from does so with whole extensions, and nearly
    all of ours is one, with a file for each module."""

    def build_extensions(self) -> None:
        """See ``build_ext``."""
        one_after_the_other = self.compiler.compile

        def side_by_side(sources: list[str], *options: Any, **more: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: one_after_the_other([source], *options, **more), sources)
                return [file for files in made for file in files]

        self.compiler.compile = side_by_side
        super().build_extensions()


def build(target: Path = BUILT) -> None:
    """Into ``target``, whatever was there. Raises one of IMPOSSIBLE where nothing can be compiled."""
    shutil.rmtree(target, ignore_errors=True)
    modules = (*MODULES, *APART)
    built_from = fingerprints(modules)
    os.chdir(ROOT)  # mypyc tells a module's name from its path
    sources = [str(source_of(module).relative_to(ROOT)) for module in modules]
    with tempfile.TemporaryDirectory(prefix="txha-build-") as workshop:
        extensions = mypycify(sources, opt_level=OPTIMISE, debug_level="0", target_dir=workshop, multi_file=True)
        distribution = Distribution({"name": "txha-compiled", "ext_modules": extensions})
        command = BuildSideBySide(distribution)
        command.build_lib, command.build_temp = str(target), str(Path(workshop) / "objects")
        command.ensure_finalized()
        command.run()
    (target / FINGERPRINTS).write_text(json.dumps(built_from, indent=1))


def main() -> None:
    """Build, or say why not."""
    logging.disable(logging.INFO)
    try:
        build()
    except IMPOSSIBLE as error:
        print(f"== the hot path is not compiled and runs as plain Python, slower: {str(error).splitlines()[0]}")
    BUILT.mkdir(parents=True, exist_ok=True)


if __name__ == "__main__":
    main()
