"""What pip installs is a working txha: outside a checkout, with nothing but its declared dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from python_tests.harness.cluster import free_base_port
from tests.packaging.installed import ROOT, build_sdist, build_wheel, install, run
from txobserver.release import VERSION

pytestmark = pytest.mark.slice

NO_COMPILER = {"CC": "/nonexistent/cc"}
SHIPPED = ("txha", "broker_plugin", "ha", "recovery", "txobserver", "python_tests/harness")
"""Folders of which every module is in the wheel"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def plain(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A wheel that was built of the source distribution where there is no C compiler, and what was said."""
    return build_wheel(sdist, tmp_path_factory.mktemp("plain"), **NO_COMPILER)


@pytest.fixture(scope="module")
def commands(plain: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of an environment with that wheel."""
    return install(plain[0], tmp_path_factory.mktemp("environment") / "venv")


def shipped_modules() -> set[str]:
    found = {f"{path.relative_to(ROOT)}" for folder in SHIPPED for path in (ROOT / folder).rglob("*.py")}
    return found | {path.name for path in ROOT.glob("*.py")} - {"setup.py"} | {"python_tests/__init__.py"}


def test_the_wheel_holds_the_product_and_nothing_else(plain: tuple[Path, str]) -> None:
    with zipfile.ZipFile(plain[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    data = {f"{path.relative_to(ROOT)}" for folder in SHIPPED for path in (ROOT / folder).rglob("py.typed")}
    data |= {f"{path.relative_to(ROOT)}" for path in (ROOT / "recovery/pages/templates").glob("*.html")}
    assert names == shipped_modules() | data | {"python_tests/harness/stress/disk_shim.c"}


def test_the_source_distribution_has_no_tests_and_all_that_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"setup.py", "pyproject.toml", "README.md", "LICENSE", "Dockerfile", "packaging/txha@.service"}
    assert names >= shipped_modules()
    assert not [name for name in names if name.startswith(("tests", "python_tests/suites", "docs", "build"))]
    assert not [name for name in names if name.endswith("users.toml")]


def test_without_a_compiler_the_build_says_so_and_the_wheel_is_for_every_platform(plain: tuple[Path, str]) -> None:
    wheel, said = plain
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "txha is not compiled and runs as plain Python, slower" in said


def test_the_version_says_which_core_runs(commands: Path, tmp_path: Path) -> None:
    said = run(commands / "txha", "--version", cwd=tmp_path).stdout
    assert said.startswith(f"txha {VERSION}, core pure, Python 3.")


def test_every_command_is_there_without_an_extra(commands: Path, tmp_path: Path) -> None:
    said = run(commands / "txha", "--help", cwd=tmp_path).stdout
    for command in ("node", "cluster", "status", "demo", "stress", "takeover"):
        assert f" {command} " in said
    for command in ("demo", "stress", "takeover", "node"):
        run(commands / "txha", command, "--help", cwd=tmp_path)


@pytest.mark.every
def test_what_needs_an_extra_says_which(commands: Path, tmp_path: Path) -> None:
    for command in ("demo", "takeover", "stress"):
        done = subprocess.run(
            [commands / "txha", command], cwd=tmp_path, env=outside(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 2 and "txha[" in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1


def outside(**environment: str) -> dict[str, str]:
    """The environment of a process that knows nothing of this checkout."""
    return {**os.environ, "PYTHONPATH": "", **environment}


@contextmanager
def cluster(commands: Path, directory: Path, nodes: int = 1, **environment: str) -> Iterator[int]:
    """A cluster run by the installed command; yields the port of its first node."""
    port = free_base_port(nodes)
    process = subprocess.Popen(
        [commands / "txha", "cluster", "--dir", directory / "c", "--nodes", str(nodes), "--base-port", str(port)],
        cwd=directory,
        env=outside(**environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == "cluster ready"
        yield port
    finally:
        process.terminate()
        assert process.wait(30) == 0


def pass_a_transaction(port: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/")) as connection:
        channel = connection.channel()
        for queue in ("a", "b"):
            channel.queue_declare(queue, durable=True)
        channel.tx_select()
        for queue in ("a", "b"):
            channel.basic_publish("", queue, b"one")
        channel.tx_commit()
        assert [channel.basic_get(queue, auto_ack=True)[2] for queue in ("a", "b")] == [b"one", b"one"]


def cores(commands: Path, directory: Path) -> list[str]:
    said = run(commands / "txha", "status", "--dir", directory / "c", "--json", cwd=directory).stdout
    return [node["core"] for node in json.loads(said)]


def test_an_installed_cluster_commits_a_transaction(commands: Path, tmp_path: Path) -> None:
    with cluster(commands, tmp_path) as port:
        pass_a_transaction(port)
        assert cores(commands, tmp_path) == ["pure"]


@pytest.mark.every
@pytest.mark.timeout(1500)
def test_with_a_compiler_the_installed_nodes_run_compiled(sdist: Path, tmp_path: Path) -> None:
    wheel, _ = build_wheel(sdist, tmp_path / "wheel")
    assert f"-cp{sys.version_info.major}{sys.version_info.minor}-" in wheel.name
    commands = install(wheel, tmp_path / "venv")
    assert ", core compiled, " in run(commands / "txha", "--version", cwd=tmp_path).stdout
    assert ", core pure, " in run(commands / "txha", "--version", cwd=tmp_path, TXHA_CORE="pure").stdout
    with cluster(commands, tmp_path, 3) as port:
        pass_a_transaction(port)
        assert cores(commands, tmp_path) == ["compiled"] * 3
