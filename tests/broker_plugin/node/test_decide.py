"""What becomes of a client's connection, by what its node is just then."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker_plugin.amqp.protocol.introductions import Introducer
from broker_plugin.node.doors import Doors
from broker_plugin.node.passing import PassOn, Refuse, Serve, Verdict
from broker_plugin.node.passing_tls import SecureWay
from ha.messages.greeting import INTRODUCTIONS, INTRODUCTIONS_TLS, greeting
from ha.outside import Outside

SERVING = SimpleNamespace(point=SimpleNamespace(serving=True))
CLOSING = SimpleNamespace(point=SimpleNamespace(serving=False))
ATTACHED = SimpleNamespace(attached=True, primary="a")
DETACHED = SimpleNamespace(attached=False, primary="a")
INTRODUCER = Introducer("b", b"key")
UNGREETED = SimpleNamespace(attached=True, primary="c")


def verdict(
    state: str,
    primary: Any,
    backup: Any,
    clients: str = "proxy",
    features: Sequence[str] = (),
    amqps_port: int = 0,
    dialled: Any = None,
    introducer: Introducer = INTRODUCER,
    draining: bool = False,
    role: Any = None,
) -> Verdict:
    doors: Any = Doors.__new__(Doors)
    looked: list[None] = []
    shell = SimpleNamespace(look_at_clock=lambda: looked.append(None))
    leading = primary and SimpleNamespace(primary=primary, handover=SimpleNamespace(draining=draining))
    following = backup and SimpleNamespace(backup=backup)
    core = SimpleNamespace(state=state, leading=leading, following=following, generation=7, role=role)
    hello = msgspec.structs.replace(
        greeting("c", "a", "h", 5672), features=features, amqps_host="s", amqps_port=amqps_port
    )
    links = SimpleNamespace(greetings={"a": hello})
    doors._parts = core, shell, None, links
    doors._clients = SimpleNamespace(verdict=lambda generation: Serve(verdict))
    doors._refuse, doors._introducer = clients == "refuse", introducer
    doors._dialled = dialled
    found: Verdict = doors.decide()
    assert looked == [None], "a node that was stopped may have lost its lease"
    return found


@pytest.mark.parametrize("clients", ["proxy", "refuse"])
def test_an_active_primary_serves(clients: str) -> None:
    assert verdict("active", SERVING, None, clients) == Serve(verdict)
    assert verdict("active", CLOSING, None, clients) is None, "it hands over"
    assert verdict("active", SERVING, None, clients, draining=True) is None, "it is about to"
    assert verdict("active", None, None, clients) is None


def test_a_removed_node_refuses_clients_at_once() -> None:
    """It never serves them, and passes none on: let them try another node."""
    assert verdict("joining", None, None, role=Outside.__new__(Outside)) == Refuse()


def test_a_recovering_primary_lets_wait() -> None:
    assert verdict("recovering", SERVING, None) is None


@pytest.mark.parametrize("state", ["joining", "catchup", "ready"])
def test_a_backup_passes_on_as_soon_as_it_knows_where_to(state: str) -> None:
    assert verdict(state, None, ATTACHED) == PassOn("h", 5672, 7, None, "a")
    assert verdict(state, None, DETACHED) is None
    assert verdict(state, None, UNGREETED) is None
    assert verdict(state, None, None) is None


@pytest.mark.parametrize("state", ["joining", "catchup", "ready", "recovering"])
def test_a_node_that_is_to_refuse_does_so_unless_it_is_active(state: str) -> None:
    assert verdict(state, None, ATTACHED, "refuse") == Refuse()


def test_clients_are_introduced_to_a_primary_that_knows_what_that_is() -> None:
    """One of an earlier version would take it for a client that speaks no AMQP, and close the connection."""
    found = verdict("ready", None, ATTACHED, features=["another", INTRODUCTIONS])
    assert found == PassOn("h", 5672, 7, INTRODUCER, "a")
    found = verdict("ready", None, ATTACHED, features=["another"])
    assert isinstance(found, PassOn) and found.introducer is None


def test_clients_go_by_tls_where_both_nodes_can() -> None:
    """Where the primary says that it listens, and understands there how a client has come."""
    features, options = [INTRODUCTIONS, INTRODUCTIONS_TLS], dict[str, Any]
    secure = SecureWay("s", 5671, "a", "c", INTRODUCER, options)
    found = verdict("ready", None, ATTACHED, features=features, amqps_port=5671, dialled=options)
    assert found == PassOn("h", 5672, 7, INTRODUCER, "a", secure)
    for part in (
        verdict("ready", None, ATTACHED, features=features, amqps_port=5671),
        verdict("ready", None, ATTACHED, features=features, dialled=options),
        verdict("ready", None, ATTACHED, features=[INTRODUCTIONS], amqps_port=5671, dialled=options),
    ):
        assert part == PassOn("h", 5672, 7, INTRODUCER, "a")


def test_a_node_without_a_secret_introduces_none_in_clear() -> None:
    features, options = [INTRODUCTIONS, INTRODUCTIONS_TLS], dict[str, Any]
    none = Introducer("b", None)
    found = verdict("ready", None, ATTACHED, "proxy", features, 5671, options, none)
    assert found == PassOn("h", 5672, 7, None, "a", SecureWay("s", 5671, "a", "c", none, options))
