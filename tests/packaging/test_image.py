"""The Dockerfile's steps, carried out one by one in roots that debootstrap makes: what a builder would do.

As root, with the package sources of this machine and its settings for pip; by ``make image``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from python_tests.harness.waiting import wait_until
from tests.packaging import dockerfile
from tests.packaging.dockerfile import Stage
from tests.packaging.installed import ROOT

pytestmark = [pytest.mark.image, pytest.mark.timeout(3000)]
SETTINGS = ("etc/resolv.conf", "etc/pip.conf", "etc/xdg/pip", "root/.config/pip", "root/.pip")
"""Of this machine: how the network and the packages are reached. They are no part of an image."""
TRUSTED = "etc/ssl/certs/ca-certificates.crt"
"""Whom this machine trusts: the root's own file of that name is written by a step."""
COPY_OF_TRUSTED = "etc/trusted-by-the-builder.crt"


ENTER = (
    'mount --bind /proc "$0/proc" && mount --rbind /dev "$0/dev" &&'
    ' exec chroot "--userspec=$1" "$0" /usr/bin/env -C "$2" "${@:3}"'
)
"""With /proc and /dev, as a container engine mounts them, in a mount namespace that ends with the process"""


def entering(root: Path, words: list[str], user: str = "0:0", cwd: str = "/") -> list[str]:
    """The command that runs another one within a root, as this user."""
    return ["unshare", "--mount", "--propagation=private", "bash", "-c", ENTER, str(root), user, cwd, *words]


def in_root(root: Path, words: list[str], user: str = "0:0", cwd: str = "/") -> subprocess.CompletedProcess[str]:
    """Such a command, to its end."""
    ours = {name: value.replace(f"/{TRUSTED}", f"/{COPY_OF_TRUSTED}") for name, value in os.environ.items()}
    environment = {**ours, "LC_ALL": "C", "PIP_CERT": f"/{COPY_OF_TRUSTED}"}
    return subprocess.run(
        entering(root, words, user, cwd), capture_output=True, text=True, check=False, env=environment
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``debian:bookworm-slim`` is, and this machine's settings of the network."""
    root = tmp_path_factory.mktemp("base") / "root"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True, capture_output=True)
    for name in SETTINGS:
        if (Path("/") / name).exists():
            put(Path("/") / name, root / name)
    put(Path("/") / TRUSTED, root / COPY_OF_TRUSTED)
    return root


def put(here: Path, there: Path) -> None:
    """A copy of a file or of a folder's content."""
    there.parent.mkdir(parents=True, exist_ok=True)
    if here.is_dir():
        shutil.copytree(here, there, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(here, there)


class Builder:
    """Carries stages out, each in a copy of the base."""

    def __init__(self, base: Path, directory: Path) -> None:
        self._base = base
        self._directory = directory
        self._context = directory / "context"
        for line in (ROOT / ".dockerignore").read_text().splitlines():
            for path in ROOT.glob(line[1:]) if line.startswith("!") else ():
                put(path, self._context / path.name)
        self.roots: dict[str, Path] = {}

    def build(self, stage: Stage) -> Path:
        """The root that the stage's steps lead to."""
        assert stage.base == "debian:bookworm-slim"
        root = self.roots[stage.name] = self._directory / f"root-{len(self.roots)}"
        subprocess.run(["cp", "-a", self._base, root], check=True)
        cwd, variables = "/", ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        for instruction, argument in stage.steps:
            if instruction == "WORKDIR":
                cwd = argument
                (root / cwd.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif instruction == "COPY":
                self._copy(root, cwd, argument)
            elif instruction == "ENV":
                variables = [argument]
            elif instruction == "RUN":
                done = in_root(root, [*variables, "/bin/sh", "-c", argument], cwd=cwd)
                assert done.returncode == 0, f"{argument}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return root

    def _copy(self, root: Path, cwd: str, argument: str) -> None:
        *sources, target = argument.split()
        origin = self._context
        if sources[0].startswith("--from="):
            origin = self.roots[sources.pop(0).removeprefix("--from=")]
        there = root / os.path.join(cwd, target).lstrip("/")
        for source in sources:
            if source == ".":
                put(origin, there)
            else:
                put(origin / source.lstrip("/"), there / source if len(sources) > 1 else there)


@pytest.fixture(scope="module")
def image(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Stage]:
    """The root of the last stage, and the stage."""
    builder, stages = Builder(base, tmp_path_factory.mktemp("image")), dockerfile.read(ROOT / "Dockerfile")
    for stage in stages:
        root = builder.build(stage)
    return root, stages[-1]


def run(image: tuple[Path, Stage], *words: str) -> subprocess.CompletedProcess[str]:
    """The image's entry point with other words behind it, as its user."""
    root, stage = image
    return in_root(root, [*stage.all("ENV"), *stage.words("ENTRYPOINT"), *words], stage.all("USER")[-1])


def test_the_image_runs_compiled_as_a_user_without_rights(image: tuple[Path, Stage]) -> None:
    done = run(image, "--version")
    assert re.match(r"txha 0\.1\.0, core compiled, Python 3\.11", done.stdout), done.stderr


def test_the_image_has_no_compiler_no_pip_and_nothing_that_its_user_may_change(image: tuple[Path, Stage]) -> None:
    root, _ = image
    assert not [path for path in ("usr/bin/gcc", "usr/bin/pip3", "opt/txha/bin/pip") if (root / path).exists()]
    writable = [path for path in (root / "opt").rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert writable == []
    for name in ("store", "record"):
        found = (root / "var/lib/txha" / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (10001, 10001, 0o700)


def test_a_cluster_runs_in_the_image(image: tuple[Path, Stage]) -> None:
    root, _ = image
    config = root / "etc/txha/node.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(
        'name = "n"\ncluster = "c"\ndir = "/var/lib/txha/store"\n'
        'coordination = "/var/lib/txha/record/coordination.sqlite"\n'
        "[amqp]\nport = 15671\n"
        '[peer]\nport = 15670\nsecret = "@/var/lib/txha/cluster.secret"\n'
    )
    assert run(image, "init", "--config", "/etc/txha/node.toml").returncode == 0
    stage = image[1]
    command = [*stage.all("ENV"), *stage.words("ENTRYPOINT"), *stage.words("CMD")]
    node = subprocess.Popen(entering(root, command, stage.all("USER")[-1]))
    try:
        wait_until(lambda: not run(image, *stage.health()[1:]).returncode, 60, "a healthy node")
    finally:
        node.terminate()
        assert node.wait(30) == 0
