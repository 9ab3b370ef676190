"""What is given to ``txha member`` is checked before any node is asked (``broker_plugin.cli.access.members``)."""

from __future__ import annotations

import pytest

from broker_plugin.cli.access.members import read_address
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.tables import members_table
from tests.support.commands import txha_here


@pytest.mark.parametrize(
    "text,read",
    [("h:1", ("h", 1)), ("10.0.0.2:65535", ("10.0.0.2", 65535)), ("[::1]:5801", ("::1", 5801))],
)
def test_an_address(text: str, read: tuple[str, int]) -> None:
    assert read_address(text) == read


WRONG = ("h:²", "h:٣", "10..0.0.4:1", ".a:1", "h\n:1", "0.0.0.0:1", "[::]:1", f"{'h' * 64}:1", f"{'h.' * 130}h:1")


@pytest.mark.parametrize(
    "text",
    ["h", ":1", "h:", "h:x", "h:0", "h:65536", "h:+1", "::1:5801", "[::1]", "[h]:1", "[]:1", "a b:1", "u@h:1", *WRONG],
)
def test_no_address(text: str) -> None:
    with pytest.raises(BadArgument):
        read_address(text)
    found = txha_here("member", "add", "n", text, "--dir", "nowhere")
    assert found.returncode == 2 and found.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [("add", "", "h:1"), ("remove", "x" * 101)])
def test_no_name(words: tuple[str, ...]) -> None:
    found = txha_here("member", *words, "--dir", "nowhere")
    assert found.returncode == 2 and "a node's name has 1 to 100 characters" in found.stderr


@pytest.mark.parametrize("name", ["d\nERROR", " ", "d ", "\tnode-4"])
def test_a_name_that_cannot_be_read_is_refused(name: str) -> None:
    found = txha_here("member", "add", name, "h:1", "--dir", "nowhere")
    assert found.returncode == 2 and "can be printed" in found.stderr and found.stderr.count("\n") == 1


def test_a_member_that_is_not_reached_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"host": "h", "port": 1, "primary": False, "ready": False, "counts": False}
    rows = [row | {"name": name, "reached": name != "b"} for name in "abc"]
    found = {"members": rows, "in_record": True, "change": 1, "min_ready": 1, "removed_stores": []}
    members_table("a", found)
    assert "a does not reach b: is it down, or at another address?" in capsys.readouterr().out
    members_table("a", found | {"members": [rows[0], rows[2]]})
    assert "does not reach" not in capsys.readouterr().out


def test_a_list_that_may_be_old_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """With etcd gone it looked as ever, and a change was refused for want of a primary."""
    row = {"name": "a", "host": "h", "port": 1, "primary": True, "ready": True, "counts": True, "reached": True}
    found = {"members": [row], "in_record": True, "change": 1, "min_ready": 1, "removed_stores": []}
    for earlier in (found, found | {"record_error": None}):
        members_table("a", earlier)
        assert "may be old" not in capsys.readouterr().out
    members_table("a", found | {"record_error": "etcd gives no answer: h:1: refused"})
    said = "this is what a last knew, and may be old: etcd gives no answer: h:1: refused\n"
    assert capsys.readouterr().out.endswith(said)
