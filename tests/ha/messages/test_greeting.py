"""What two nodes agree on by their greetings: the newest common version, the common features, or a refusal."""

from __future__ import annotations

import msgspec
import pytest

from ha.messages import greeting as greeting_module
from ha.messages.greeting import FEATURES, OLDEST_VERSION, WIRE_VERSION, Agreed, Hello, agreed, greeting
from recovery.reader.log_wire import decode_greeting


def hello(node: str, oldest: int, newest: int, *features: str) -> Hello:
    return Hello(newest, "cluster", node, "", 0, "", oldest, list(features))


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [((5, 5), (5, 5), 5), ((5, 7), (6, 9), 7), ((5, 7), (7, 7), 7), ((3, 9), (4, 5), 5), ((0, 4), (4, 6), 4)],
)
def test_two_nodes_speak_the_newest_version_that_both_know(
    ours: tuple[int, int], theirs: tuple[int, int], version: int
) -> None:
    a, b = hello("a", *ours), hello("b", *theirs)
    assert agreed(a, b).version == agreed(b, a).version == version


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        (
            (5, 7),
            (8, 9),
            "it speaks versions 8 to 9 of the peer protocol and this node versions 5 to 7: upgrade node a",
        ),
        (
            (5, 7),
            (2, 4),
            "it speaks versions 2 to 4 of the peer protocol and this node versions 5 to 7: upgrade node b",
        ),
        ((5, 5), (0, 4), "it speaks version 4 of the peer protocol and this node version 5: upgrade node b"),
    ],
)
def test_without_a_common_version_the_refusal_says_both_ranges_and_which_node_to_upgrade(
    ours: tuple[int, int], theirs: tuple[int, int], sentence: str
) -> None:
    with pytest.raises(ValueError, match="upgrade node") as refused:
        agreed(hello("a", *ours), hello("b", *theirs))
    assert str(refused.value) == sentence


def test_what_both_name_is_in_common_and_nothing_else() -> None:
    assert agreed(hello("a", 5, 5, "x", "y"), hello("b", 5, 5, "y", "z")) == Agreed(5, frozenset({"y"}))


def test_a_node_greets_with_all_that_this_version_speaks() -> None:
    found = greeting("cluster", "a", "h", 1, "feed")
    assert (found.oldest, found.version, set(found.features)) == (OLDEST_VERSION, WIRE_VERSION, FEATURES)
    assert decode_greeting(msgspec.msgpack.encode(found)) == found


def test_a_range_and_features_are_named_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a version that speaks two versions of the protocol and has features; today's has one and none."""
    monkeypatch.setattr(greeting_module, "OLDEST_VERSION", WIRE_VERSION - 1)
    monkeypatch.setattr(greeting_module, "FEATURES", frozenset({"y", "x"}))
    found = greeting("cluster", "a", "h", 1)
    assert (found.oldest, found.version, found.features) == (WIRE_VERSION - 1, WIRE_VERSION, ["x", "y"])


def test_a_node_of_0_1_0_is_refused_and_is_the_one_to_upgrade() -> None:
    """It speaks version 4, in which messages have fields that this version does not read."""
    with pytest.raises(ValueError, match=r"it speaks version 4 .*: upgrade node b"):
        agreed(greeting("cluster", "a", "h", 1), Hello(4, "cluster", "b", "h", 1))


def test_a_greeting_of_0_1_0_is_understood_and_names_one_version_and_no_features() -> None:
    """It has six fields; and one before 0.1.0 finds our newest version where it looks for its own, and says so."""
    old = decode_greeting(msgspec.msgpack.encode([0, 4, "cluster", "b", "h", 1, "feed"]))
    assert isinstance(old, Hello) and (old.version, old.oldest, old.features) == (4, 0, [])
    assert msgspec.to_builtins(greeting("cluster", "a", "h", 1))[1] == WIRE_VERSION != 4


class EarlierHello(msgspec.Struct, array_like=True, tag=0):
    """As release 0.1.0 reads it (0bd109e8)."""

    version: int
    cluster: str
    node: str
    amqp_host: str
    amqp_port: int
    cluster_id: str = ""
    oldest: int = 0
    features: list[str] = []


def test_an_earlier_node_leaves_out_where_clients_are_served_by_tls() -> None:
    ours = msgspec.structs.replace(greeting("c", "a", "h", 1), amqps_host="s", amqps_port=5671)
    theirs = msgspec.msgpack.decode(msgspec.msgpack.encode(ours), type=EarlierHello)
    assert (theirs.node, theirs.amqp_port, theirs.features) == ("a", 1, ours.features)
    back = decode_greeting(msgspec.msgpack.encode(theirs))
    assert isinstance(back, Hello) and (back.amqps_host, back.amqps_port) == ("", 0)
