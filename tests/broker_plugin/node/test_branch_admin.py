"""What an operator sees and decides of branches, against the process as it is wired (``node.branch_admin``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pamqp.commands import Basic, Queue

from broker_plugin.node import branch_admin
from tests.broker_plugin.amqp.dtx_client import DtxChannel, xid
from tests.broker_plugin.coordination.test_stale_answers import ServedByShell
from txobserver.ids import Member

X, Y = xid("x"), xid("y")
OTHERS = Member("other", "1")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServedByShell]:
    node = ServedByShell(tmp_path / "a")
    node.start()
    yield node
    node.stop()


@pytest.fixture
def client(node: ServedByShell) -> DtxChannel:
    """Queue q holds a message; branch x has published two more, and taken one."""
    channel = DtxChannel(node.port)
    channel.ask(Queue.Declare(queue="q", durable=True))
    channel.publish("q", b"stays")
    channel.publish("q", b"taken")
    channel.start(X)
    channel.publish("q", b"one")
    channel.publish("q", b"two")
    got = channel.ask(Basic.Get(queue="q"))
    channel._content()
    channel.send(Basic.Ack(got.delivery_tag))
    channel.end(X)
    channel.prepare(X)
    return channel


def refusal(node: ServedByShell, command: str, name: str = "1:x:b") -> str:
    answer = node.administer(command, xid=name)
    assert not answer["ok"]
    return str(answer["error"])


def shown(node: ServedByShell, command: str, **arguments: str) -> Any:
    answer = node.administer(command, **arguments)
    assert answer["ok"], answer
    return answer["result"]


def test_a_prepared_branch_is_listed_and_shown(node: ServedByShell, client: DtxChannel) -> None:
    (row,) = shown(node, "dtx.list")
    assert 0 <= row.pop("age") < 3600
    assert row == {"xid": "1:x:b", "state": "prepared", "generation": 1, "enqueues": {"q": 2}, "dequeues": {"q": 1}}
    found = shown(node, "dtx.show", xid="1:x:b")
    assert found.pop("age") < 3600 and found == {**row, "decision": "unknown"}


def test_its_age_is_counted_in_seconds(
    node: ServedByShell, client: DtxChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (branch,) = node.broker.content.branches()
    for passed, age in ((90_500, 90.5), (-5000, 0)):
        monkeypatch.setattr(branch_admin, "wall_ms", lambda passed=passed: branch.prepared_ms + passed)
        assert shown(node, "dtx.list")[0]["age"] == age


@pytest.mark.parametrize("commit", [True, False])
def test_an_operator_s_decision_is_carried_out_listed_and_forgotten(
    node: ServedByShell, client: DtxChannel, commit: bool
) -> None:
    command, state = ("commit", "committed") if commit else ("rollback", "rolled back")
    row = {"xid": "1:x:b", "state": f"heuristically {state}"}
    assert shown(node, f"dtx.{command}", xid="1:x:b") == row
    assert client.drain("q") == ([b"taken", b"one", b"two"] if commit else [b"stays", b"taken"])
    assert shown(node, "dtx.list") == [row]
    assert shown(node, "dtx.show", xid="1:x:b") == {**row, "decision": "unknown"}
    assert "there is no branch 1:x:b" in refusal(node, f"dtx.{command}"), "it is decided"
    assert shown(node, "dtx.forget", xid="1:x:b") == {"xid": "1:x:b", "state": "forgotten"}
    assert shown(node, "dtx.list") == []


@pytest.mark.parametrize("command", ["show", "commit", "rollback", "forget"])
def test_what_is_not_there_is_refused(node: ServedByShell, client: DtxChannel, command: str) -> None:
    assert "there is no branch 1:y:b" in refusal(node, f"dtx.{command}", "1:y:b")
    assert refusal(node, f"dtx.{command}", "nonsense") == refusal(node, "dtx.show", "nonsense")


def test_a_branch_that_is_not_prepared_is_not_decided(node: ServedByShell, client: DtxChannel) -> None:
    client.start(Y)
    assert "is not prepared" in refusal(node, "dtx.commit", "1:y:b")
    assert shown(node, "dtx.show", xid="1:y:b") == {"xid": "1:y:b", "state": "active", "decision": "unknown"}


def test_a_decision_that_the_ledger_refuses(
    node: ServedByShell, client: DtxChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.broker.ledger, "decide_branch", lambda *words: words[-1]("no"))
    assert refusal(node, "dtx.commit") == "no"


@pytest.mark.parametrize("command", ["commit", "rollback"])
def test_what_is_refused_is_not_logged_as_decided(
    node: ServedByShell,
    client: DtxChannel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: str,
) -> None:
    """No such branch, one that is not prepared, one that the ledger refuses; and then one that is taken."""
    client.start(Y)
    for name in ("1:y:b", "1:z:b", "nonsense"):
        refusal(node, f"dtx.{command}", name)
    with monkeypatch.context() as patched:
        patched.setattr(node.broker.ledger, "decide_branch", lambda *words: words[-1]("no"))
        assert refusal(node, f"dtx.{command}") == "no"
    assert not [each for each in caplog.messages if "operator" in each]
    shown(node, f"dtx.{command}", xid="1:x:b")
    assert len([each for each in caplog.messages if "an operator wants branch 1:x:b" in each]) == 1


def test_one_that_does_not_pass_the_commit_point_in_time(
    node: ServedByShell, client: DtxChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(branch_admin, "DEADLINE_SECONDS", 0.01)
    monkeypatch.setattr(node.broker.ledger, "decide_branch", lambda *words: asked.append(words))
    assert refusal(node, "dtx.commit") == "not known after 0.01 s, look with `txha dtx show`"
    ((which, commit, heuristic, done),) = asked
    assert (str(which), commit, heuristic) == ("1:x:b", True, True)
    node.call(lambda: done(None))  # too late: no client waits any more


def test_a_node_that_is_not_the_active_primary_says_whom_to_ask() -> None:
    looked: list[None] = []
    core, broker = SimpleNamespace(record=None, leading=None), SimpleNamespace(active=False)
    shell = SimpleNamespace(look_at_clock=lambda: looked.append(None))
    admin: Any = branch_admin.BranchAdmin(core, broker, shell)  # type: ignore[arg-type]
    led, vacant = SimpleNamespace(primary=OTHERS), SimpleNamespace(primary=None)
    absent = "there is none at the moment"
    for record, leading, said in (
        (led, None, "ask other"),
        (led, object(), absent),
        (vacant, None, absent),
        (None, None, absent),
    ):
        core.record, core.leading = record, leading
        with pytest.raises(branch_admin.CommandRefused, match=f"^this node is not the active primary; {said}$"):
            admin._check_active()
    assert len(looked) == 4
    broker.active = True
    admin._check_active()
