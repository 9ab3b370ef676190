"""Which core a process runs, and what becomes of it where nothing can be compiled.

That both cores do the same is shown by the core's own tests: ``make test`` runs them on each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_plugin import compiled
from python_tests.harness.cluster import LocalCluster
from recovery.compiled import ROOT

PLACES = "import broker_plugin.compiled as c; c.MODULES = ('ha.watch', 'txobserver.digest'); c.APART = ()"
"""Two small modules stand for all of them."""
BUILDER = ("broker_plugin/compiled/__init__.py", "broker_plugin/compiled/build.py", "recovery/compiled.py")


def run(root: Path, code: str, **environment: str) -> str:
    """What Python prints in a copy of the sources."""
    answer = subprocess.run(
        [sys.executable, "-c", f"{PLACES}\n{code}"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), compiled.SWITCH: "", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A project with nothing built."""
    for name in ("broker_plugin", "broker_plugin/compiled", "recovery", "txobserver", "ha"):
        (tmp_path / name).mkdir()
    for source in (*BUILDER, "ha/watch.py", "txobserver/digest.py"):
        (tmp_path / source).write_text((ROOT / source).read_text())
    for package in ("broker_plugin", "recovery", "txobserver", "ha"):
        (tmp_path / package / "__init__.py").write_text("")
    return tmp_path


BUILD = "from broker_plugin.compiled.build import main; main()"
LOOK = "c.use(); import ha.watch as p; print(c.running(), p.__file__)"


def test_what_is_built_is_used_until_the_sources_change(sources: Path) -> None:
    assert run(sources, LOOK).split() == ["pure", str(sources / "ha" / "watch.py")]
    assert "not compiled" not in run(sources, BUILD)
    core, file = run(sources, LOOK).split()
    built = sources / "build" / "compiled" / "ha" / "watch."
    assert core == "compiled" and file.startswith(str(built))
    assert run(sources, LOOK, **{compiled.SWITCH: "pure"}).split()[0] == "pure"
    with (sources / "ha" / "watch.py").open("a") as file_:
        file_.write("# changed\n")
    assert run(sources, LOOK).split()[0] == "pure", "no process runs what the sources do not say any more"


def test_without_a_compiler_one_line_says_so_and_the_plain_modules_run(sources: Path) -> None:
    said = run(sources, BUILD, CC="/nonexistent/cc")
    (line,) = [each for each in said.splitlines() if each.startswith("==")]
    assert "not compiled" in line
    assert run(sources, LOOK).split()[0] == "pure"


@pytest.mark.every
def test_it_is_too_late_once_a_plain_module_has_been_loaded(sources: Path) -> None:
    run(sources, BUILD)
    late = "import ha.watch\ntry:\n    c.use()\nexcept RuntimeError as error:\n    print(error)"
    assert "ha.watch" in run(sources, late)


@pytest.mark.parametrize("switch", ["", "pure"])
def test_a_node_says_which_core_it_runs(tmp_path: Path, switch: str) -> None:
    with LocalCluster(tmp_path / "c", 1, environment={compiled.SWITCH: switch}) as cluster:
        (node,) = cluster.status()
    assert node["core"] == ("compiled" if compiled.available() and not switch else "pure")


def test_the_command_loads_nothing_of_the_core_before_it_is_settled_which_one_runs() -> None:
    """Else every command would end in an error wherever there is a compiled core."""
    program = (
        "import sys, broker_plugin.cli.main, broker_plugin.compiled as c\n"
        "print(sorted(set(c.MODULES).intersection(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PARTS = """
import importlib, inspect, pkgutil
from broker_plugin.compiled import MODULES
for package in ("txobserver", "ha", "broker_plugin", "recovery", "txha"):
    within = pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
    for name in [each.name for each in within if not each.name.endswith("__main__")]:
        for part in vars(importlib.import_module(name)).values():
            if inspect.isclass(part) and part.__module__ == name and name not in MODULES:
                print(*(f"{name}: {each}" for each in part.__bases__ if each.__module__ in MODULES), end="")
"""


def test_what_inherits_from_a_compiled_class_is_compiled() -> None:
    """Python makes no object of another class: the turn in which a node first does would be its last
    (``a_removed_node_ends_where_the_core_is_compiled``)."""
    environment = {**os.environ, compiled.SWITCH: "pure"}
    command = [sys.executable, "-c", PARTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert not done.stdout.strip()
