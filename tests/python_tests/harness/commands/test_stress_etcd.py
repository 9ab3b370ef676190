"""``txha stress --coordination etcd``: real nodes, a real etcd beside them, and a fault of txha that it must find."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.commands import command_line
from python_tests.harness.stress import command
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.results import BAD_INPUT, BROKEN, HELD, NOT_PROVEN
from tests.python_tests.harness.commands.test_command import stress

LONGER_THAN_A_LEASE = 7
"""Seconds: 4 of lease, and what is waited for in addition before anything is held against a node"""
STEPS = (
    ("etcd-leader", "any", 3),
    ("etcd-kill", "primary", 2),
    ("etcd-stop", "primary", 2),
    ("etcd-delay", "primary", 2),
    ("etcd-cut", "primary", LONGER_THAN_A_LEASE),
    ("cut", "primary", LONGER_THAN_A_LEASE),
    ("etcd-all", "any", LONGER_THAN_A_LEASE),
)


def a_schedule(path: Path, steps: tuple[tuple[str, str, float], ...]) -> Path:
    """One after the other."""
    rows, at = [], 1.0
    for kind, target, seconds in steps:
        rows.append(f'[[step]]\nat = {at}\nfault = "{kind}"\ntarget = "{target}"\nfor = {seconds}\n')
        at += seconds + 1.5
    path.write_text("".join(rows))
    return path


@pytest.mark.slice
def test_hosts_with_a_node_and_an_etcd_each_are_cut_slowed_and_killed_and_every_promise_holds(tmp_path: Path) -> None:
    schedule = str(a_schedule(tmp_path / "schedule.toml", STEPS))
    options = ("--coordination", "etcd", "--network", "namespaces", "--schedule", schedule, "--seed", "6")
    more = ("--rounds", "1", "--seconds", "1", "--min-rate", "1", "--patience", "90", "--json")
    done = stress("--dir", str(tmp_path / "run"), *options, *more)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["broken"], done.stderr
    assert done.returncode == (NOT_PROVEN if found["not_proven"] else HELD)
    assert [(each["kind"], each["hit"]) for each in found["injections"]] == [(kind, True) for kind, _, _ in STEPS]
    judged = {each["kind"] for each in found["injections"] if each["leases_judged"]}
    assert judged == {"etcd-cut", "cut", "etcd-all"}
    assert all(each["take_overs"] is not None for each in found["injections"])
    assert found["verdict"]["committed"] > 40 and found["stores"]["decisions"] > 40
    assert not list(Path("/sys/class/net").glob("txha*")), "nothing is left behind"


class Planted(StressCluster):
    """Its nodes have a primary that never steps down by its lease."""

    def node_command(self, name: str, settings: Any = ()) -> list[str]:
        """See ``StressCluster``."""
        words = super().node_command(name, settings)
        return ["tests.support.never_steps_down" if word == "broker_plugin.cli.main" else word for word in words]


@pytest.mark.parametrize("cluster", [StressCluster, Planted], ids=["as it is", "a primary that never steps down"])
def test_a_primary_that_goes_on_without_etcd_is_found(
    tmp_path: Path, cluster: type[StressCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10. No message is lost or doubled by it, as no other node can be primary: the clients' record alone would not
    show it."""
    monkeypatch.setattr(command, "StressCluster", cluster)
    monkeypatch.setenv("TXHA_CORE", "pure")
    options = command.Options(
        tmp_path / "run",
        extent=command.Extent(rounds=1, seconds=1.0, patience=90.0),
        schedule=a_schedule(tmp_path / "schedule.toml", (("etcd-all", "any", 7.0),)),
        seed=1,
        min_rate=0.0,
        network="none",
        coordination="etcd",
        settings=["timing.lease_ttl=2"],
        as_json=True,
    )
    results = []
    monkeypatch.setattr(command, "write_page", lambda path, result: results.append(result))
    status = command.run(options)
    (found,) = results
    assert [each.leases_judged for each in found.injections] == [True]
    if cluster is StressCluster:
        assert status in (HELD, NOT_PROVEN) and not found.broken
    else:
        assert status == BROKEN and not found.verdict.broken
        assert any("was active" in finding for finding in found.leases)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--coordination", "zookeeper"), "there is no coordination store 'zookeeper'; there are sqlite, etcd"),
        (("--faults", "etcd-kill"), "etcd-kill is not possible here: there is no etcd: give --coordination etcd"),
        (("--coordination", "etcd", "--faults", "lost-record"), "there is no coordination file"),
        (("--coordination", "etcd", "--network", "proxies", "--faults", "etcd-cut"), "in network namespaces only"),
        (("--coordination", "etcd", "--url", "amqp://127.0.0.1:1"), "--coordination has no effect with --url"),
    ],
)
def test_what_can_be_mended_is_one_sentence(
    tmp_path: Path,
    options: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["txha", "stress", "--dir", str(tmp_path / "run"), *options])
    with pytest.raises(SystemExit) as ended:
        command_line()
    assert ended.value.code == BAD_INPUT
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("txha: ")]
    assert sentence in line and not (tmp_path / "run" / "cluster").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(("--coordination", "zookeeper"), "there is no coordination store 'zookeeper'; there are sqlite, etcd")],
)
def test_what_can_be_mended_of_a_takeover(
    options: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["txha", "takeover", *options])
    with pytest.raises(SystemExit) as ended:
        command_line()
    assert ended.value.code == BAD_INPUT and sentence in capsys.readouterr().err
