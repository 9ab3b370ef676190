"""What becomes of a client's connection, by what its node is just then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.node.main import NodeProcess
from broker_plugin.node.proxy import PassOn, Refuse, Serve, Verdict

SERVING = SimpleNamespace(point=SimpleNamespace(serving=True))
CLOSING = SimpleNamespace(point=SimpleNamespace(serving=False))
ATTACHED = SimpleNamespace(attached=True, primary="a")
DETACHED = SimpleNamespace(attached=False, primary="a")
UNGREETED = SimpleNamespace(attached=True, primary="c")


def verdict(state: str, primary: Any, backup: Any, clients: str = "proxy") -> Verdict:
    node: Any = NodeProcess.__new__(NodeProcess)
    looked: list[None] = []
    node.shell = SimpleNamespace(look_at_clock=lambda: looked.append(None))
    leading = primary and SimpleNamespace(primary=primary)
    following = backup and SimpleNamespace(backup=backup)
    node.core = SimpleNamespace(state=state, leading=leading, following=following, generation=7)
    node._config = SimpleNamespace(backup_clients=clients)
    node.links = SimpleNamespace(greetings={"a": SimpleNamespace(amqp_host="h", amqp_port=5672)})
    node.amqp = SimpleNamespace(connection_factory=verdict)
    found: Verdict = node._decide()
    assert looked == [None], "a node that was stopped may have lost its lease"
    return found


@pytest.mark.parametrize("clients", ["proxy", "refuse"])
def test_an_active_primary_serves(clients: str) -> None:
    assert verdict("active", SERVING, None, clients) == Serve(verdict)  # type: ignore[arg-type]
    assert verdict("active", CLOSING, None, clients) is None, "it hands over"
    assert verdict("active", None, None, clients) is None


def test_a_recovering_primary_lets_wait() -> None:
    assert verdict("recovering", SERVING, None) is None


@pytest.mark.parametrize("state", ["joining", "catchup", "ready"])
def test_a_backup_passes_on_as_soon_as_it_knows_where_to(state: str) -> None:
    assert verdict(state, None, ATTACHED) == PassOn("h", 5672, 7)
    assert verdict(state, None, DETACHED) is None
    assert verdict(state, None, UNGREETED) is None
    assert verdict(state, None, None) is None


@pytest.mark.parametrize("state", ["joining", "catchup", "ready", "recovering"])
def test_a_node_that_is_to_refuse_does_so_unless_it_is_active(state: str) -> None:
    assert verdict(state, None, ATTACHED, "refuse") == Refuse()
