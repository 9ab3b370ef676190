"""``txha promote --accept-data-loss`` says that a loss is accepted once the node has accepted it, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli import commands
from broker_plugin.cli.cluster.promoting import lost
from broker_plugin.cli.layout import NodeEntry
from recovery.reader.node_admin import AdminError

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
    monkeypatch.setattr(commands, "node_entry", lambda dir, node: NodeEntry(node, 1, 1, tmp_path))
    if refusal:
        with pytest.raises(AdminError):
            commands.promote(tmp_path, "b", accept_data_loss=True, yes=True)
        assert capsys.readouterr().err == ""
    else:
        commands.promote(tmp_path, "b", accept_data_loss=True, yes=True)
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
