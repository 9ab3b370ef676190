"""Releases are built from the clone, once; what cannot be had is an error of one sentence, and no test passes by it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.releases import NAMES, ReleaseMissing, installed, named

WANTED, COMMIT = named()


def test_the_releases_are_named_by_whole_commits() -> None:
    assert named("0.1.0") == ("0.1.0", "0bd109e8fd8d7fab2079e1b2a960093d3bd68245") and len(COMMIT) == 40
    with pytest.raises(ReleaseMissing, match=r"names no release 9\.9; it names 0\.1\.0"):
        named("9.9")


def test_a_release_is_built_once(tmp_path: Path) -> None:
    first = installed(built=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [f"{WANTED}-{COMMIT[:8]}"], "nothing of the building is left"
    (first.modules / "kept").touch()
    assert installed(built=tmp_path, clone=tmp_path / "is not needed any more").modules == first.modules
    assert (first.modules / "kept").exists() and not (first.modules / "tests").exists()
    assert f"txha {WANTED}, core pure" in first.python("-m", "broker_plugin.cli.main", "--version").decode()


def test_a_clone_without_the_commit_is_told(tmp_path: Path) -> None:
    """As a shallow one, in which continuous integration may run."""
    subprocess.run(["git", "init", "--quiet", tmp_path / "clone"], check=True)
    with pytest.raises(ReleaseMissing) as said:
        installed(clone=tmp_path / "clone", built=tmp_path / "built")
    assert f"commit {COMMIT}, which this clone lacks: get it with `git fetch --unshallow`" in str(said.value)
    assert not list((tmp_path / "built").glob("*")) and "\n" not in str(said.value)


def test_no_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseMissing, match="there is no git: install it"):
        installed(built=tmp_path / "built")


@pytest.mark.every
def test_a_package_that_the_release_cannot_use_is_told(tmp_path: Path) -> None:
    here = installed().modules
    (its_own,) = here.glob("txha-*.dist-info")
    shutil.copytree(its_own, tmp_path / here.name / its_own.name)
    (metadata,) = tmp_path.glob("*/txha-*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Requires-Dist: lmdb>=1.4", "Requires-Dist: lmdb<1"))
    with pytest.raises(ReleaseMissing, match=rf"^release {WANTED} needs lmdb<1, and [\d.]+ is installed$"):
        installed(built=tmp_path)
    assert NAMES.exists()
