"""What pyproject.toml cannot say of the build: the hot path is compiled where that is possible.

A wheel carries each module as source, and, where a C compiler was found, the hot path as machine code beside them, in
``txha_compiled``. ``recovery.compiled`` finds it there. An editable installation compiles nothing: ``make install``
does, into ``build/compiled``. With ``TXHA_CORE=pure`` in the environment the wheel is plain, and runs anywhere.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, ExecError, LinkError, PlatformError

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # pip builds in a process that does not look here

from recovery.compiled import INSTALLED, SWITCH  # noqa: E402

NOT_SHIPPED = {"conftest"}
"""Modules of ``python_tests`` that only pytest reads"""


def can_compile() -> bool:
    """Whether there is a C compiler, and the headers of this Python, and mypyc."""
    if os.environ.get(SWITCH) == "pure":
        return False
    from distutils.ccompiler import new_compiler  # that of setuptools, by now
    from distutils.sysconfig import customize_compiler, get_python_inc

    try:
        import mypyc.build  # noqa: F401

        compiler = new_compiler()
        customize_compiler(compiler)
        with tempfile.TemporaryDirectory(prefix="txha-probe-") as workshop:
            probe = Path(workshop) / "probe.c"
            probe.write_text("#include <Python.h>\n")
            compiler.compile([str(probe)], output_dir=workshop, include_dirs=[get_python_inc()])
    except (ImportError, CompileError, ExecError, LinkError, PlatformError) as error:
        print(f"txha is not compiled and runs as plain Python, slower: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


class Txha(Distribution):
    """Its wheel is one of this platform if it holds machine code, else one for every platform."""

    _compiles: bool | None = None

    def has_ext_modules(self) -> bool:
        if self._compiles is None:
            self._compiles = can_compile()
        return self._compiles


class BuildModules(build_py):
    """The packages, without what only pytest reads."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if each[1] not in NOT_SHIPPED]


class BuildCompiled(build_ext):
    """The hot path as machine code. What fails here fails the build: there is a compiler, so it should not."""

    def run(self) -> None:
        if self.editable_mode:
            return
        from broker_plugin.compiled.build import build

        build((Path(self.build_lib) / INSTALLED.name).absolute())

    def get_outputs(self) -> list[str]:
        built = Path(self.build_lib) / INSTALLED.name
        return [] if self.editable_mode else [str(path) for path in built.rglob("*") if path.is_file()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []


setup(distclass=Txha, cmdclass={"build_py": BuildModules, "build_ext": BuildCompiled})
