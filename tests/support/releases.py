"""Releases of txha beside the present version: built from the clone as wheels, and where their modules stand.

``packaging/releases.toml`` names each release with its commit. A wheel is built once for each machine, plain, and
unpacked into ``build/releases``; its programs run on the interpreter and the packages of the present version.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from recovery.compiled import SWITCH

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "packaging" / "releases.toml"
BUILT = ROOT / "build" / "releases"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


class ReleaseMissing(RuntimeError):
    """The release cannot be had here; one sentence says why, and what to do."""


@dataclass(frozen=True)
class Release:
    """A release by its version, and the commit that it was made of; ``modules``: where its packages stand."""

    version: str
    commit: str
    modules: Path

    def environment(self) -> dict[str, str]:
        """For a process that is to run this release: its modules first, and none of the directory that it starts in."""
        return {"PYTHONPATH": str(self.modules), "PYTHONSAFEPATH": "1", SWITCH: "pure"}

    def python(self, *words: str, given: bytes = b"") -> bytes:
        """What a Python program on the modules of this release writes. Raises CalledProcessError, with what it said."""
        done = subprocess.run(
            [sys.executable, *words],
            input=given,
            capture_output=True,
            env={**os.environ, **self.environment()},
            cwd=self.modules,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{self.version}: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout


def present() -> Release:
    """The version that stands here, run as it is."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return Release(version, "", ROOT)


def named(version: str | None = None, names: Path = NAMES) -> tuple[str, str]:
    """The version and the commit of a release, the last one if none is named. Raises ReleaseMissing."""
    releases = {str(each["version"]): str(each["commit"]) for each in tomllib.loads(names.read_text())["release"]}
    wanted = version or list(releases)[-1]
    if wanted not in releases:
        raise ReleaseMissing(f"{names.name} names no release {wanted}; it names {', '.join(releases)}")
    return wanted, releases[wanted]


def installed(version: str | None = None, names: Path = NAMES, clone: Path = ROOT, built: Path = BUILT) -> Release:
    """A release, ready to run; it is built where this machine has not built it yet. Raises ReleaseMissing."""
    wanted, commit = named(version, names)
    modules = built / f"{wanted}-{commit[:8]}"
    if not modules.is_dir():
        sources = _sources(wanted, commit, clone)
        built.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=built) as workshop:
            _build(wanted, sources, Path(workshop))
            _put(Path(workshop) / "modules", modules)
    _check_packages(wanted, modules)
    return Release(wanted, commit, modules)


def _sources(version: str, commit: str, clone: Path) -> bytes:
    """What the commit holds, as a tar file."""
    try:
        done = subprocess.run(["git", "-C", clone, "archive", commit], capture_output=True, check=False)
    except FileNotFoundError:
        raise ReleaseMissing(f"release {version} is built from the clone, and there is no git: install it") from None
    if done.returncode:
        raise ReleaseMissing(
            f"release {version} is built of commit {commit}, which this clone lacks: get it with "
            "`git fetch --unshallow`, or work in a whole clone"
        )
    return done.stdout


def _build(version: str, sources: bytes, workshop: Path) -> None:
    """Its wheel, plain, unpacked into ``workshop/modules``."""
    with tarfile.open(fileobj=io.BytesIO(sources)) as archive:
        archive.extractall(workshop / "sources", filter="data")
    offline = ("--no-deps", "--no-index", "--no-cache-dir")
    wheel = (*PIP, "wheel", *offline, "--no-build-isolation", "--wheel-dir", "wheel", "./sources")
    install = (*PIP, "install", *offline, "--no-compile", "--target", "modules")
    _pip(version, workshop, wheel)
    _pip(version, workshop, (*install, *map(str, workshop.glob("wheel/*.whl"))))


def _pip(version: str, workshop: Path, command: tuple[str, ...]) -> None:
    environment = {**os.environ, SWITCH: "pure", "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=workshop, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseMissing(f"release {version} cannot be built here: {done.stderr.strip()[-1000:]}")


def _put(made: Path, place: Path) -> None:
    """Whole or not at all, also where another test builds it at the same time."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        shutil.rmtree(made)


def _check_packages(version: str, modules: Path) -> None:
    """It was released with other packages than are here now: they must be what it asks for."""
    (its_own,) = modules.glob("txha-*.dist-info")
    for text in metadata.PathDistribution(its_own).requires or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        found = metadata.version(wanted.name)
        if not wanted.specifier.contains(found, prereleases=True):
            raise ReleaseMissing(f"release {version} needs {text}, and {found} is installed")
