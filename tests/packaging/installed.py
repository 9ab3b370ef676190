"""Installations of this project as users make them, without the network.

An environment sees nothing but the declared dependencies and what they need, of those that ``make install`` has put
into its own: each of their files and folders stands there as a symbolic link.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "site", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "tests", "docs"
)
QUIETLY = {"PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **QUIETLY, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done


def build_sdist(directory: Path) -> Path:
    """The source distribution, made from a copy of this checkout: a build writes into its sources."""
    sources, target = directory / "sources", directory / "sdist"
    shutil.copytree(ROOT, sources, ignore=LEFT_OUT)
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", target, sources, cwd=directory)
    (found,) = target.glob("*.tar.gz")
    return found


def build_wheel(source: Path, target: Path, **environment: str) -> tuple[Path, str]:
    """The wheel that pip builds of a source distribution, and what is said meanwhile."""
    pip = (sys.executable, "-m", "pip", "wheel", "--verbose", "--no-cache-dir", "--no-deps", "--no-build-isolation")
    done = run(*pip, "--wheel-dir", target, source, cwd=source.parent, **environment)
    (found,) = target.glob("*.whl")
    return found, done.stdout + done.stderr


def install(wheel: Path, directory: Path) -> Path:
    """A new environment with the wheel and its dependencies; returns the folder of its commands."""
    venv.create(directory, with_pip=False, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", directory / "bin" / "python", "install")
    run(*pip, "--no-deps", "--no-index", "--no-cache-dir", "--quiet", wheel, cwd=directory)
    (metadata_file,) = packages.glob("txha-*.dist-info/METADATA")
    for name in _needed(re.findall(r"^Requires-Dist: (.*)$", metadata_file.read_text(), re.MULTILINE), set()):
        _link(metadata.distribution(name), packages)
    return directory / "bin"


def _needed(requirements: list[str], seen: set[str]) -> set[str]:
    """The names of all distributions that these lead to; extras are left out."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)  # packages do not agree on how to write it
        if name not in seen:
            seen.add(name)
            _needed(metadata.requires(name) or [], seen)
    return seen


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    for name in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        (packages / name).symlink_to(Path(str(distribution.locate_file(name))).resolve())
