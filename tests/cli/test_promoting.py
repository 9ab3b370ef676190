"""``txha promote --accept-data-loss`` says that a loss is accepted once the node has accepted it, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli import commands
from broker_plugin.cli.layout import NodeEntry
from recovery.node_admin import AdminError

STATUS = {"name": "b", "position": "3.7", "record_version": 12, "ready_set": ["a"]}


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
        assert "b stands at 3.7: what only a held behind it is lost" in said
        assert "the loss is accepted for version 12 of the record, and stands in it from then on" in said
    assert asked == [("status", None), ("promote", {"accept_data_loss": True, "version": 12})]
