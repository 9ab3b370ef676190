"""``txha stress`` as people run it: real nodes, real clients, each kind of fault once, and every exit status."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.commands import command_line
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.judge import judge
from python_tests.harness.load import Queues
from python_tests.harness.stress.command import run_judge
from python_tests.harness.stress.faults import FAULTS
from python_tests.harness.stress.record import Recorder, read_history
from python_tests.harness.stress.results import BAD_INPUT, BROKEN, HELD, NOT_PROVEN
from python_tests.harness.stress.store_faults import STORE_FAULTS
from python_tests.harness.waiting import wait_until
from tests.python_tests.model_broker import FLAWS, Run
from tests.support.cases import some_of

Captured = pytest.CaptureFixture[str]

TXHA = [sys.executable, "-m", "broker_plugin.cli.main"]


def stress(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TXHA, "stress", *options], capture_output=True, text=True, check=False, timeout=380)


def a_schedule(path: Path, steps: Sequence[str | tuple[str, str]], apart: float = 3.0) -> Path:
    """One fault after the other, each for a second; of the primary unless a step names another target."""
    rows = []
    for number, step in enumerate(steps):
        kind, target = (step, "primary") if isinstance(step, str) else step
        rows.append(f'[[step]]\nat = {1 + apart * number}\nfault = "{kind}"\ntarget = "{target}"\nfor = 1\n')
    path.write_text("".join(rows))
    return path


def run_of(tmp_path: Path, schedule: Path, *more: str) -> dict[str, Any]:
    """One round by this schedule, in which every promise must hold; what it printed."""
    options = ("--dir", str(tmp_path / "run"), "--schedule", str(schedule), "--rounds", "1", "--seconds", "1", *more)
    done = stress(*options, "--min-rate", "1", "--seed", "4", "--patience", "90", "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["broken"], done.stderr
    assert found["verdict"]["committed"] > 40 and found["stores"]["decisions"] > 40
    assert done.returncode == (NOT_PROVEN if found["not_proven"] else HELD)
    return found


DISK, CLOCK, RECORD = ("slow-disk", "failed-sync"), ("clock", "clock-jump"), ("lost-record",)
OFTEN = ("--set", "store.checkpoint_seconds=0.5")
"""So that a fault of checkpoints need not wait for one"""


@pytest.mark.slice
def test_every_kind_of_fault_hits_real_nodes_and_every_promise_holds(tmp_path: Path) -> None:
    """Those of processes and networks, and a full disk; the others have tests of their own."""
    elsewhere = {"rolling", *DISK, "clock-jump", *RECORD, *(fault.kind for fault in STORE_FAULTS)}
    kinds = [kind for kind in FAULTS if kind not in elsewhere] + ["rolling"]
    found, place = run_of(tmp_path, a_schedule(tmp_path / "schedule.toml", kinds)), tmp_path / "run"
    assert {each["kind"]: each["hit"] for each in found["injections"]} == dict.fromkeys(kinds, True)
    verdict = judge(read_history(place / "history.parquet"), Queues().outputs)
    assert json.loads(json.dumps(verdict.as_dict())) == found["verdict"], "the file is judged as the run was"
    assert (place / "report.html").read_text().count("<svg") == 2
    assert not list(Path("/sys/class/net").glob("txha*")), "nothing is left behind"


@pytest.mark.slice
@pytest.mark.parametrize("kinds", [DISK, CLOCK])
def test_faults_of_disks_and_clocks_hit_the_primary_and_a_ready_backup(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    steps = [(kind, target) for target in ("backup", "primary") for kind in kinds]
    found = run_of(tmp_path, a_schedule(tmp_path / "schedule.toml", steps, apart=5), *OFTEN, "--network", "none")
    hits = [(each["kind"], each["role"]) for each in found["injections"] if each["hit"]]
    assert hits == steps


@pytest.mark.slice
def test_a_lost_record_is_recovered_as_the_documents_tell(tmp_path: Path) -> None:
    """Removed and damaged, under running nodes and under none: the seed has all four ways."""
    schedule = a_schedule(tmp_path / "schedule.toml", [("lost-record", "node-1")] * 4)
    found = run_of(tmp_path, schedule, "--network", "none")
    assert all(each["hit"] for each in found["injections"])
    assert len({each["done"] for each in found["injections"]}) == 4


@pytest.mark.every
def test_brokers_by_url_with_a_command_for_each_fault(tmp_path: Path) -> None:
    """Here they are nodes of ours, and the command is given their number."""
    with LocalCluster(tmp_path / "cluster", 3, "--restart") as cluster:
        find = (
            "import json, os, sys; nodes = json.load(open(sys.argv[1]))['nodes']; "
            "print(nodes[int(os.environ['STRESS_NODE']) - 1]['pid'])"
        )
        pid = f'{sys.executable} -c "{find}" {cluster.directory / "cluster.json"}'
        urls = [word for url in cluster.urls for word in ("--url", url)]
        schedule = str(a_schedule(tmp_path / "schedule.toml", ["fail", "kill"]))
        done = stress(
            *urls, "--fault-command", f"kill=kill -9 $({pid})", "--heal-command", "kill=sleep 0.1",
            "--fault-command", "fail=false", "--queue-argument", "x-queue-type=quorum", "--schedule", schedule,
            "--rounds", "1", "--seconds", "3", "--dir", str(tmp_path / "run"), "--min-rate", "1", "--json",
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == NOT_PROVEN, done.stderr
        hits = {each["kind"]: each["hit"] for each in found["injections"]}
        assert hits == {"kill": True, "fail": False}, "a command that fails has hit nothing"
        assert not found["broken"] and found["verdict"]["committed"] > 20 and not found["stores"]
        assert all(node["queues"] == {} for node in cluster.status() if node["state"] == "active"), (
            "its queues are gone"
        )


@pytest.mark.parametrize("flaw", ["", *FLAWS])
def test_a_history_of_a_broker_with_a_flaw_is_judged_broken(tmp_path: Path, flaw: str, capsys: Captured) -> None:
    """The suite can fail: whatever a broker does wrong is found in the file, and the exit status is 1."""
    for seed in range(10):
        path = tmp_path / f"{seed}.parquet"
        with Recorder(path) as recorder:
            recorder.write(Run(random.Random(seed), flaw).history)
        if judge(read_history(path), ("a", "b", "c")).broken:
            break
    assert run_judge(path) == (BROKEN if flaw else HELD)
    assert ("a promise was broken" if flaw else "every promise held") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--faults", "flood"), "there is no fault 'flood'"),
        (("--network", "pigeons"), "there is no network 'pigeons'"),
        (("--faults", "cut", "--network", "none"), "cut is not possible here: --network none"),
        (("--faults", "isolate", "--network", "proxies"), "in network namespaces only"),
        (("--faults", "partial", "--nodes", "1"), "partial is not possible here: a single node has no other"),
        (("--judge", "history.parquet", "--rounds", "3", "--set", "a=b"), "--rounds, --set: --judge only judges"),
        (("--min-rate", "nan"), "--min-rate must be a finite number"),
        (("--min-rate", "-5"), "--min-rate must be a finite number, and not negative"),
        (("--patience", "inf"), "--patience must be a finite number"),
        (("--schedule", "nowhere.toml"), "cannot read nowhere.toml"),
        (("--fault-command", "kill=true"), "go with --url"),
        (("--url", "amqp://127.0.0.1:1"), "need a --fault-command"),
        (("--url", "amqp://127.0.0.1:1", "--fault-command", "kill"), "--fault-command wants key=value"),
        (("--url", "amqp://127.0.0.1:1", "--fault-command", "kill=true"), "let a client in"),
        (("--judge", "nowhere.parquet"), "nowhere.parquet"),
        (("--judge", "n" * 300), "File name too long"),
        (("--set", "nonsense=1"), "unknown key 'nonsense'"),
        (("--set", "timing.lease_ttl=0"), "timing.lease_ttl: Input should be greater than 0"),
        (("--set", "name=x"), "name cannot be set for a local cluster"),
        (("--set", "min_ready"), "--set wants key=value, not 'min_ready'"),
        (("--dir", "n" * 300), "cannot be used: File name too long"),
        (("--dir", "/etc/hostname"), "/etc/hostname is no directory: choose another --dir"),
        (("--dir", "/etc/hostname/below"), "/etc/hostname is no directory: choose another --dir"),
    ],
)
def test_what_can_be_mended_is_one_sentence(
    tmp_path: Path, options: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Nothing is made before: it said where everything is kept, and left a directory for each mistake."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    beside = {"--judge", "--dir"} & set(options)
    for directory in ((), ("--dir", str(tmp_path / "run"))) if not beside else ((),):
        monkeypatch.setattr(sys, "argv", ["txha", "stress", *directory, *options])
        with pytest.raises(SystemExit) as ended:
            command_line()
        assert ended.value.code == BAD_INPUT
        told = capsys.readouterr()
        (line,) = [line for line in told.err.splitlines() if line.startswith("txha: ")]
        assert sentence in line and "is kept in" not in told.out and not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["n" * 300, "/etc/hostname"])
def test_the_demo_needs_a_directory_as_well(given: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "argv", ["txha", "demo", "--dir", given])
    with pytest.raises(SystemExit) as ended:
        command_line()
    told = capsys.readouterr()
    assert ended.value.code == BAD_INPUT and not told.out and told.err.startswith(f"txha: {given} ")


def test_a_run_does_not_mix_with_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    done = stress("--dir", str(tmp_path))
    assert done.returncode == BAD_INPUT and "exists already" in done.stderr


def test_without_its_libraries_it_says_how_to_install_them(tmp_path: Path) -> None:
    program = (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyarrow' else find(name, *rest)\n"
        "from broker_plugin.cli.main import main\nsys.argv = ['txha', 'stress']\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == BAD_INPUT
    assert done.stderr.strip() == "txha: txha stress needs pyarrow: install it with pip install 'txha[stress]'"


ENDS = [
    *(("namespaces", number, 7) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
    *(("proxies", number, 4) for number in (signal.SIGINT, signal.SIGTERM)),
]
"""What ends the suite, and how many processes it has: nodes, namespaces, the proxies. On loopback it has mounted a
small disk where everybody's are, which SIGKILL leaves there."""


@pytest.mark.parametrize(("network", "number", "at_least"), some_of(ENDS, suite=[ENDS[2], ENDS[4]]))
def test_whatever_ends_the_suite_nothing_of_it_is_left(
    tmp_path: Path, network: str, number: signal.Signals, at_least: int
) -> None:
    directory = str(tmp_path / "run")
    options = ("--dir", directory, "--network", network, "--faults", "cut,delay,disk-full", "--seconds", "3")
    suite = subprocess.Popen([*TXHA, "stress", *options], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert suite.stdout is not None
    children: list[int] = []
    for line in suite.stdout:
        if "round 1" in line:
            children = [int(pid) for pid in Path(f"/proc/{suite.pid}/task/{suite.pid}/children").read_text().split()]
            break
    assert len(children) >= at_least
    suite.send_signal(number)
    suite.communicate()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 10, "the end of all children")
    assert not [line for line in Path("/proc/mounts").read_text().splitlines() if str(tmp_path) in line]
