"""``txha definitions``: what is said, what is written where, and what the exit status tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker_plugin.admin.server import CommandRefused
from broker_plugin.cli.access import cluster_asked, definitions
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.layout import NodeEntry
from recovery.reader.node_admin import AdminError
from tests.broker_plugin.definitions.held import FILES, without_numbers
from tests.broker_plugin.definitions.held_node import HeldNode

REAL = FILES / "rabbitmq-4.0-http.json"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> HeldNode:
    node = HeldNode()

    def ask(directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
        try:
            return node.ask(command, arguments)
        except CommandRefused as error:
            raise AdminError(str(error)) from None

    monkeypatch.setattr(cluster_asked, "nodes_shown", lambda dir, config: [NodeEntry("b", None, 1, Path("b"))])
    monkeypatch.setattr(cluster_asked, "node_status", lambda entry: {"state": "active", "generation": 1})
    monkeypatch.setattr(cluster_asked, "ask", ask)
    return node


def run(*words: str, given: str | None = None) -> tuple[int, str]:
    found = CliRunner().invoke(definitions.app, [words[0], "--dir", "x", *words[1:]], input=given)
    if isinstance(found.exception, AdminError | BadArgument):
        raise found.exception
    return found.exit_code, found.output


def refused(*words: str, given: str | None = None) -> str:
    with pytest.raises(BadArgument) as error:
        run(*words, given=given)
    return str(error.value)


def test_a_real_file_is_imported_and_what_is_written_is_imported_elsewhere(node: HeldNode, tmp_path: Path) -> None:
    status, said = run("import", str(REAL))
    assert status == 0 and "3 users" in said and "3 queues" in said and "imported, says b" in said
    out = tmp_path / "out.json"
    status, said = run("export", str(out))
    assert status == 0 and "3 users, " in said and ", 3 queues, " in said and " of b in " in said
    assert out.stat().st_mode & 0o777 == 0o600, "hashes of passwords stand in it"
    expected = without_numbers(node.held.state)
    assert run("export")[1] == out.read_text()
    other = HeldNode()
    node.handlers, node.held = other.handlers, other.held
    assert run("import", "-", given=out.read_text())[0] == 0
    assert without_numbers(node.held.state) == expected


def test_what_cannot_be_honoured_stops_an_import_unless_the_rest_is_wanted(node: HeldNode, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text('{"queues": [{"vhost": "/", "name": "q"}, {"vhost": "/", "name": "r", "durable": false}]}')
    before = without_numbers(node.held.state)
    status, said = run("import", str(file))
    assert status == 1 and "queue 'r'" in said and "it is not durable" in said and "nothing was imported: 1" in said
    assert without_numbers(node.held.state) == before
    status, said = run("import", str(file), "--dry-run", "--partial")
    assert status == 0 and "1 queues would be imported, and 1 left out" in said
    assert without_numbers(node.held.state) == before
    status, said = run("import", str(file), "--json")
    assert status == 1 and json.loads(said) == {
        "imported": False,
        "counts": {"queues": 1},
        "left_out": [{"entry": "queue 'r'", "why": "it is not durable, so it does not outlive its primary: clients "
                      "declare it"}],
    }  # fmt: skip
    status, said = run("import", str(file), "--partial", "--json")
    assert status == 0 and json.loads(said)["imported"]
    assert list(node.held.contents.configuration.queues) == ["q"]


def test_one_virtual_host(node: HeldNode, tmp_path: Path) -> None:
    run("import", str(REAL))
    status, said = run("export", "-p", "orders")
    file = json.loads(said)
    assert status == 0 and "users" not in file and "vhost" not in file["queues"][0]
    assert "there is no virtual host 'other'" in refused("export", "--vhost", "other")
    assert "there is no virtual host 'other'" in refused("import", "-", "--vhost", "other", given=said)
    assert "give the virtual host" in refused("import", "-", given=said)
    assert run("import", "-", "--vhost", "/", given=said)[0] == 0
    assert "shop.paid" in node.held.contents.configuration.queues


def test_no_file_is_written_over_unless_that_is_wanted(node: HeldNode, tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text("mine")
    assert "is there already" in refused("export", str(file))
    assert file.read_text() == "mine"
    assert run("export", str(file), "--force")[0] == 0 and json.loads(file.read_text())["product_name"] == "txha"
    assert "cannot write" in refused("export", str(tmp_path / "absent" / "f.json"))


def test_a_file_that_was_left_beside_is_not_followed_nor_read_by_others(node: HeldNode, tmp_path: Path) -> None:
    """Whoever may write there puts a name beside the one that an operator will give."""
    out, beside, target = tmp_path / "out.json", tmp_path / "out.json.new", tmp_path / "target"
    beside.touch(mode=0o644)
    beside.chmod(0o644)
    assert run("export", str(out))[0] == 0 and out.stat().st_mode & 0o777 == 0o600
    target.write_text("mine")
    beside.symlink_to(target)
    assert "cannot write" in refused("export", str(out), "--force") and target.read_text() == "mine"


def test_what_is_no_file_is_told(node: HeldNode, tmp_path: Path) -> None:
    assert "cannot read" in refused("import", str(tmp_path / "absent"))
    assert "is no file of definitions" in refused("import", "-", given="{")
    assert "cannot read" in refused("import", str(tmp_path)), "a directory"
    assert [command for command, _ in node.asked] == ["definitions.state"]


def test_what_is_no_file_of_its_own_is_not_written_to(node: HeldNode, tmp_path: Path) -> None:
    """``/dev/full`` became a file with hashes of passwords, and a link was replaced."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    for file in (link, Path("/dev/null"), tmp_path):
        assert "is no file of its own" in refused("export", str(file), "--force")
    assert link.is_symlink() and target.read_text() == "mine"


def test_without_a_standard_input_there_is_no_trace(node: HeldNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions.sys, "stdin", None)
    with pytest.raises(BadArgument, match="there is no standard input"):
        definitions._read(definitions.STANDARD)
