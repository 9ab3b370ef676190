"""``txha`` has what it says: its lists agree, every name can be had, and nothing else can."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import txha
from recovery.pipeline.packaging import package_code
from tests.txha.names import MODULES, exceptions

ROOT = Path(__file__).parents[2]
ALL = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
LAZY = pytest.mark.parametrize("module", [txha, txha.spark], ids=lambda module: module.__name__)


def source(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def for_mypy(module: ModuleType) -> set[tuple[str, str]]:
    """What is imported where types are checked: (module, name)."""
    [block] = [each for each in source(module).body if isinstance(each, ast.If)]
    found = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    return {(str(each.module), alias.name) for each in found for alias in each.names}


def at_run_time(module: ModuleType) -> set[tuple[str, str]]:
    """The same, of the table by which names are found."""
    [table] = [each for each in ast.walk(source(module)) if isinstance(each, ast.Dict)]
    found = set()
    for where, names in ast.literal_eval(table).items():
        found |= {(where, name) for name in names} or {tuple(where.rsplit(".", 1))}
    return found


@LAZY
def test_mypy_sees_what_a_program_gets(module: ModuleType) -> None:
    assert for_mypy(module) == at_run_time(module)
    assert sorted(name for _, name in for_mypy(module)) == sorted(module.__all__)


@ALL
def test_every_name_is_there_once(module: ModuleType) -> None:
    assert len(module.__all__) == len(set(module.__all__))
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is not None


@ALL
def test_all_of_it_can_be_imported_by_a_star(module: ModuleType) -> None:
    found: dict[str, object] = {}
    exec(f"from {module.__name__} import *", found)
    assert set(found) - {"__builtins__"} == set(module.__all__)


@LAZY
def test_another_name_is_no_attribute(module: ModuleType) -> None:
    assert not hasattr(module, "Cordinator")
    with pytest.raises(ImportError, match="cannot import name 'Cordinator'"):
        exec(f"from {module.__name__} import Cordinator")


def test_the_version_is_that_of_the_package() -> None:
    assert txha.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_no_name_hides_one_of_python() -> None:
    assert not set(txha.__all__) & set(vars(builtins))


# -- what is typed


def test_types_go_along_with_the_packages() -> None:
    """A type checker takes an installed package for untyped if it lacks this file."""
    needed = {each.split(".")[0] for module in (txha, txha.spark) for each, _ in for_mypy(module)}
    assert needed == {"txha", "recovery", "txobserver"}
    for package in needed:
        assert (ROOT / package / "py.typed").exists()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "py.typed" in settings["package-data"]["*"]
    assert {"txha", "txha.*"} <= {*settings["packages"]["find"]["include"]}


USER = """
import txha
from txha import Broker, Coordinator, DecisionLog, OutcomeUnknown, BranchOutcome, Postgresql, Xid, resources
from txha.spark import spark_session
from txha.spi import Host
from typing_extensions import assert_type

def transfer(coordinator: Coordinator) -> dict[str, txha.BranchOutcome]:
    try:
        with coordinator.transaction() as t:
            t.database.execute("SELECT 1")
    except txha.HeuristicTransaction as error:
        assert_type(error.outcome, BranchOutcome)
        return error.fates
    except OutcomeUnknown as error:
        assert_type(error.outcome, BranchOutcome | None)
    return {}

def branch(broker: txha.DtxConnection, xid: Xid) -> None:
    broker.tpc_begin(xid, timeout=5)
    assert_type(broker.tpc_prepare(), bool)
    broker.tpc_commit(b"no xid")  # type: ignore[arg-type]

txha.Cordinator  # type: ignore[attr-defined]
spark_session(nmae="x")  # type: ignore[call-arg]
assert_type(txha.parse_xid("1:a:b"), txha.Xid)
assert_type(txha.__version__, str)
"""


@pytest.mark.timeout(900)
def test_a_program_of_a_user_passes_mypy_strict(tmp_path: Path) -> None:
    """Every wrong line of it is marked as such, and mypy complains of a mark that is not needed."""
    (tmp_path / "program.py").write_text(USER)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(tmp_path / "program.py"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- what is imported


def in_another_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


EXTRAS = ("aio_pika", "lmdb", "pandas", "pika", "psycopg", "pyarrow", "pyspark", "sqlalchemy", "transaction", "zope")


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("txha.__version__", set()),
        (" ".join(f"txha.{name};" for name in exceptions() if name not in ("LogCut", "LogReclaimed")), set()),
        ("txha.Xid; txha.BranchOutcome; txha.spi.Host; txha.events.Publish; txha.resources.recover", set()),
        ("txha.spark.spark_session; txha.PipelineError", set()),
        ("txha.DtxConnection", {"pika"}),
        ("txha.AioDtxConnection", {"aio_pika"}),
        ("txha.Postgresql", {"psycopg"}),
        ("txha.DecisionLog", set()),
        ("txha.Coordinator", {"pika", "psycopg"}),
        ("txha.TransactionalBroker", {"pika", "psycopg", "sqlalchemy", "transaction", "zope"}),
    ],
)
def test_only_what_is_asked_for_is_imported(asked: str, wanted: set[str]) -> None:
    told = in_another_process(f"import sys, txha\n{asked}\nprint(*sorted(set(sys.modules) & {set(EXTRAS)!r}))")
    assert set(told.split()) == wanted


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("DtxConnection", "pika", "clients"),
        ("AioTxConnection", "aio_pika", "clients"),
        ("Coordinator", "psycopg", "dtx"),
        ("TransactionalBroker", "sqlalchemy", "dtx"),
        ("spark.audit", "pyspark", "spark"),
    ],
)
def test_who_lacks_an_extra_is_told_which(name: str, missing: str, extra: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
import txha
try:
    txha.{name}
except ModuleNotFoundError as error:
    print(error)
"""
    assert in_another_process(code) == f"txha.{name} needs {missing}: pip install 'txha[{extra}]'\n"


def test_a_job_on_other_machines_has_the_public_name(tmp_path: Path) -> None:
    """Spark's executors are given our code in one file, and functions of a job may import it."""
    package = tmp_path / "txha.zip"
    package_code(package)
    code = f"import sys; sys.path.insert(0, {str(package)!r}); import txha.spark; txha.Xid; print(txha.__file__)"
    assert in_another_process(code).startswith(str(package))


def test_a_fault_of_our_own_is_no_missing_extra() -> None:
    code = """
import sys
sys.modules["recovery.dtx.tagged"] = None
import txha
try:
    txha.DtxConnection
except ModuleNotFoundError as error:
    print(error.name, "pip" in str(error))
"""
    assert in_another_process(code) == "recovery.dtx.tagged False\n"
