"""``txha promote --accept-data-loss`` says that a loss is accepted once the node has accepted it, and not before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli import commands
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.cluster import promoting
from broker_plugin.cli.cluster.promoting import lost
from broker_plugin.cli.layout import NodeEntry
from recovery.reader.node_admin import AdminError
from tests.support.commands import txha_here

STATUS = {
    "name": "b",
    "position": "3.7",
    "record_version": 12,
    "ready_set": ["a"],
    "former_store_ready": False,
}


@pytest.mark.parametrize("refusal", [None, "the primary is alive"])
def test_a_loss_is_said_to_be_accepted_once_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, refusal: str | None
) -> None:
    asked: list[tuple[str, Any]] = []

    def ask(directory: Path, what: str, arguments: Any = None) -> Any:
        asked.append((what, arguments))
        assert "is accepted" not in capsys.readouterr().err
        if what == "promote" and refusal:
            raise AdminError(refusal)
        return STATUS

    monkeypatch.setattr(commands, "ask", ask)
    monkeypatch.setattr(promoting, "node_entry", lambda dir, node: NodeEntry(node, 1, 1, tmp_path))
    monkeypatch.setattr(promoting, "nodes_shown", lambda dir, config, wanted: [])
    if refusal:
        with pytest.raises(AdminError):
            commands.promote("b", tmp_path, accept_data_loss=True, yes=True, wait=False)
        assert capsys.readouterr().err == ""
    else:
        commands.promote("b", tmp_path, accept_data_loss=True, yes=True, wait=False)
        said = capsys.readouterr().err
        assert "b stands at 3.7: what a held behind it is lost" in said
        assert "the loss is accepted for version 12 of the record, and stands in it from then on" in said
    assert asked == [("status", None), ("promote", {"accept_data_loss": True, "version": 12})]


@pytest.mark.parametrize(
    ("ready", "former", "held"),
    [
        (["a", "c"], False, "a and c"),
        (["a", "b"], True, "a and the former store of b"),
        (["b"], True, "the former store of b"),
        (["a", "b"], False, "a"),
        ([], False, "other nodes"),
    ],
)
def test_who_held_what_is_lost_is_named(ready: list[str], former: bool, held: str) -> None:
    """The store that the node itself had before, too, which may have been the only one that was ready."""
    said = lost({**STATUS, "ready_set": ready, "former_store_ready": former})
    assert said == f"b stands at 3.7: what {held} held behind it is lost"


def test_a_node_of_an_earlier_version_does_not_say_what_its_former_store_was() -> None:
    assert lost({key: value for key, value in STATUS.items() if key != "former_store_ready"}).endswith("is lost")


# -- the end is waited for

Told = dict[str, tuple[str, int]]
"""Of each node: its state, and its generation."""
BEFORE: Told = {"a": ("active", 3), "b": ("ready", 3)}


class Promotion:
    """``txha promote`` of b; each time that the nodes are looked at, they are one step further."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Told) -> None:
        self.left = [BEFORE, *steps]
        self.more: dict[str, Any] = {}
        self.asked: list[str] = []
        monkeypatch.setattr(commands, "ask", lambda directory, what, arguments=None: self.asked.append(what))
        monkeypatch.setattr(promoting, "node_entry", lambda dir, node: NodeEntry(node, 1, 1, dir))
        monkeypatch.setattr(promoting, "nodes_shown", lambda dir, config, wanted: self._look(dir))
        monkeypatch.setattr(promoting, "node_status", self._status)
        monkeypatch.setattr(promoting, "_POLL_SECONDS", 0)

    def _look(self, dir: Path) -> list[NodeEntry]:
        self.now = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return [NodeEntry(name, 1, 1, dir) for name in self.now]

    def _status(self, entry: NodeEntry) -> dict[str, Any]:
        state, generation = self.now[entry.name]
        return {"state": state, "generation": generation, **self.more}


def test_promote_returns_when_the_node_is_primary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It said that it had asked, and what a script did next met the old primary, or none."""
    steps: list[Told] = [
        {"a": ("active", 3), "b": ("ready", 3)},
        {"a": ("catchup", 3), "b": ("recovering", 4)},
        {"a": ("ready", 4), "b": ("active", 4)},
    ]
    promotion = Promotion(monkeypatch, *steps)
    commands.promote("b", tmp_path)
    assert promotion.now == steps[-1] and promotion.asked == ["promote"]
    assert capsys.readouterr().out == "b is primary of generation 4\n"


def test_a_reign_that_was_known_before_is_not_the_one_that_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The node was stopped while it led, has not noticed yet that another one has led since, and says so."""
    woken: Told = {"a": ("ready", 4), "b": ("active", 3)}
    promotion = Promotion(monkeypatch, woken, {"a": ("ready", 4), "b": ("ready", 4)}, {**BEFORE, "b": ("active", 5)})
    promotion.left[0] = {"a": ("active", 4), "b": ("active", 3)}
    commands.promote("b", tmp_path)
    assert promotion.left == [promotion.now] and capsys.readouterr().out == "b is primary of generation 5\n"


def test_a_node_that_has_ended_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may be started again, and lead some day; it was not asked for that."""
    promotion = Promotion(monkeypatch, {**BEFORE, "b": ("down", 0)}, {"a": ("ready", 4), "b": ("active", 4)})
    with pytest.raises(AdminError, match="b does not run any more"):
        commands.promote("b", tmp_path)
    assert len(promotion.left) == 1 and promotion.now["b"] == ("down", 0)


def test_promote_without_wait_only_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    promotion = Promotion(monkeypatch, BEFORE)
    commands.promote("b", tmp_path, wait=False)
    assert promotion.asked == ["promote"] and "asks the primary to hand over" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"a": ("active", 3), "b": ("ready", 3)}, "b is not primary after 0 s, and may still become it"),
        ({"a": ("active", 5), "b": ("ready", 5)}, "a has become primary instead of b"),
        ({"a": ("active", 3), "b": ("down", 0)}, "b does not run any more"),
    ],
)
def test_a_promotion_that_does_not_come_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Told, said: str
) -> None:
    Promotion(monkeypatch, told)
    with pytest.raises(AdminError, match=said):
        commands.promote("b", tmp_path, timeout=0.0)


@pytest.mark.parametrize("timeout", [-1.0, float("nan"), float("inf")])
def test_a_timeout_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, timeout: float) -> None:
    promotion = Promotion(monkeypatch, BEFORE)
    with pytest.raises(BadArgument, match="--timeout"):
        commands.promote("b", tmp_path, timeout=timeout)
    assert not promotion.asked


def test_a_node_is_promoted_by_its_own_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On its own host, where no directory holds the whole cluster."""
    file = tmp_path / "b.toml"
    file.write_text('name = "b"\ncluster = "c"\ndir = "b"\ncoordination = "r"\n[peer]\nport = 9\n')
    asked: list[Path] = []
    states = iter([("ready", 3), ("ready", 3), ("active", 4)])
    monkeypatch.setattr(commands, "ask", lambda directory, what, arguments=None: asked.append(directory))
    monkeypatch.setattr(
        promoting, "node_status", lambda entry: dict(zip(("state", "generation"), next(states), strict=True))
    )
    monkeypatch.setattr(promoting, "_POLL_SECONDS", 0)
    commands.promote(config=file)
    assert asked == [Path("b")] and capsys.readouterr().out == "b is primary of generation 4\n"


def test_it_must_be_said_which_node_is_promoted(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('name = "b"\ncluster = "c"\ndir = "b"\ncoordination = "r"\n[peer]\nport = 9\n')
    with pytest.raises(BadArgument, match="is the file of b, not of a"):
        commands.promote("a", config=file)
    with pytest.raises(BadArgument, match="which node"):
        commands.promote(dir=tmp_path)
    for where in ({}, {"dir": tmp_path, "config": file}):
        with pytest.raises(BadArgument, match="either --dir DIR, or --config FILE"):
            commands.promote("b", **where)


# -- what has happened is printed

HANDOVER = {"from": "a", "clients": 34, "undecided": 0, "drained": 0.012, "pause": 0.1434}
DONE: Told = {"a": ("ready", 4), "b": ("active", 4)}


def test_how_the_clients_were_closed_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Promotion(monkeypatch, DONE).more["handover"] = HANDOVER
    commands.promote("b", tmp_path)
    closed = "a closed 34 clients after 0.012 s, 0 of them with an outcome that they do not know"
    assert f"{closed}; no node served for 0.143 s\n" in capsys.readouterr().out


@pytest.mark.parametrize("handover", [HANDOVER, None])
def test_it_is_printed_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, handover: Any
) -> None:
    Promotion(monkeypatch, DONE).more["handover"] = handover
    commands.promote("b", tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"node": "b", "generation": 4, "handover": handover}


def test_json_of_what_is_not_waited_for_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    promotion = Promotion(monkeypatch, BEFORE)
    with pytest.raises(BadArgument, match="--wait waits"):
        commands.promote("b", tmp_path, wait=False, as_json=True)
    assert promotion.asked == []


@pytest.mark.parametrize("words", [(), ("--accept-data-loss",)])
def test_a_node_that_does_not_run_is_called_by_its_name(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its directory was named, which may be called anything."""
    file = tmp_path / "node.toml"
    at = f'dir = "{tmp_path}/data"\ncoordination = "{tmp_path}/record"\npeer = {{ port = 7001, secret = "@secret" }}\n'
    file.write_text(f'name = "node-1"\ncluster = "c"\n{at}')
    (tmp_path / "secret").write_text("x" * 40)
    (tmp_path / "secret").chmod(0o600)
    done = txha_here("promote", "--config", str(file), *words)
    said = f"txha: node-1 does not run: start it with `txha node --config {file}`\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
