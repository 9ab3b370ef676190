"""Files of definitions: what real ones come to, and what of a file cannot be honoured."""

from __future__ import annotations

import base64
import json
from base64 import b64decode
from typing import Any

import pytest

from broker_plugin.amqp.protocol.passwords import matches
from broker_plugin.definitions.document import MalformedDocument
from broker_plugin.definitions.writing import as_json, written, written_vhost
from tests.broker_plugin.definitions.held import FILES, Held, without_numbers
from txobserver.batch import MOST_BYTES, MOST_PARTS, MOST_VALUES
from txobserver.rules import (
    PERMISSION,
    USER_LIMIT,
    VHOST,
    VHOST_LIMIT,
    Limit,
    Permission,
    Rule,
    Vhost,
    clear_rule_step,
    place,
    set_rule_step,
)
from txobserver.vhosts import full_name

CLUSTERS = ["rabbitmq-3.10.json", "rabbitmq-3.10-http.json", "rabbitmq-4.0.json", "rabbitmq-4.0-http.json"]
TO_THE_INTERNAL_ONE = "binding of 'shop.direct' to 'shop.events' in virtual host 'orders'"
"""`rabbitmqctl` writes no internal exchange, and the binding to it all the same."""


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.mark.parametrize("file", CLUSTERS)
def test_a_file_of_a_real_rabbitmq_comes_to_what_was_there(file: str, held: Held) -> None:
    found = held.imported((FILES / file).read_bytes())
    left_out = [] if "http" in file else [(TO_THE_INTERNAL_ONE, "there is no durable exchange 'shop.direct'")]
    assert [tuple(each) for each in found.left_out] == left_out
    access, there = held.contents.access, held.contents.configuration
    assert {user.name: user.tags for user in access.users.values()} == {
        "ann": ("administrator",),
        "bob": ("management", "monitoring"),
        "guest": ("administrator",),
    }
    assert matches(access.users["ann"].hash, "secret-of-ann") and not matches(access.users["ann"].hash, "other")
    bob = access.rules[place(PERMISSION, "orders", "bob", "")].value
    assert bob == Permission(r"^shop\.", r"^(shop\..*|amq\.topic)$", ".*")
    assert access.rules[place(USER_LIMIT, "", "bob", "max-channels")].value == Limit(40)
    assert access.rules[place(VHOST_LIMIT, "orders", "orders", "max-queues")].value == Limit(200)
    if "3.10-http" not in file:  # 3.10 says by HTTP no more of a virtual host than its name
        about = access.rules[place(VHOST, "orders", "orders", "")].value
        assert about == Vhost("Orders of all shops", ("eu", "production"))
    assert {full_name("orders", name) for name in ("shop.paid", "shop.lost", "shop.Ünicode /%")} == set(there.queues)
    assert there.queues[full_name("orders", "shop.paid")].arguments == {"x-queue-type": "quorum"}
    assert len(there.bindings) == (5 if "http" in file else 4)
    assert there.exchanges[full_name("orders", "shop.events")].arguments == {"alternate-exchange": "lost"}


@pytest.mark.parametrize("version", ["3.10", "4.0"])
def test_a_file_of_one_virtual_host_goes_where_it_is_wanted(version: str, held: Held) -> None:
    held.imported('{"vhosts": [{"name": "other"}]}')
    text = (FILES / f"rabbitmq-{version}-vhost.json").read_bytes()
    found = held.imported(text.replace(b'"vhost": "orders",', b""), "other")
    assert not found.left_out
    assert full_name("other", "shop.paid") in held.contents.configuration.queues
    assert held.contents.access.rules[place(VHOST_LIMIT, "other", "other", "max-queues")].value == Limit(200)


def test_a_file_can_be_imported_again_and_so_can_what_is_written_of_it(held: Held) -> None:
    text = (FILES / "rabbitmq-4.0-http.json").read_bytes()
    held.imported(text)
    expected = without_numbers(held.state)
    assert not held.imported(text).left_out and without_numbers(held.state) == expected
    other = Held()
    assert not other.imported(as_json(written(held.state, "1"))).left_out
    assert without_numbers(other.state) == expected
    of_orders = Held()
    of_orders.imported('{"vhosts": [{"name": "orders"}]}')
    assert not of_orders.imported(as_json(written_vhost(held.state, "1", "orders")), "orders").left_out
    assert without_numbers(of_orders.state)[1] == expected[1]


def entry(section: str, **said: Any) -> dict[str, Any]:
    return {section: [said]}


VHOSTED = {"vhost": "/"}
CANNOT_BE: list[tuple[dict[str, Any], str, str]] = [
    (entry("users", name="u", password_hash="", tags=""), "user 'u'", "it has no password"),
    (
        entry("users", name="u", password_hash="x", hashing_algorithm="rabbit_password_hashing_md5", tags=[]),
        "user 'u'",
        "'rabbit_password_hashing_md5' cannot be verified",
    ),
    (
        entry("users", name="u", password_hash="no hash", tags=[]),
        "user 'u'",
        "its password_hash is no hash of rabbit_password_hashing_sha256",
    ),
    (entry("users", name="u", password="p", password_hash="h", tags=[]), "user 'u'", "leave one out"),
    (entry("vhosts", name="v", tracing=True), "virtual host 'v'", "no tracing"),
    (entry("vhosts", name="v", default_queue_type="quorum"), "virtual host 'v'", "none is 'quorum' by default"),
    (entry("vhosts", name="v", metadata={"default_queue_type": "stream"}), "virtual host 'v'", "none is 'stream'"),
    (entry("vhosts", name="v", protected_from_deletion=True), "virtual host 'v'", "protected"),
    (entry("vhosts", name=""), "virtual host ''", "it has no name"),
    (entry("vhosts", name="/", limits={"max-shovels": 1}), "limit 'max-shovels' of virtual host '/'", "no such limit"),
    (entry("vhosts", name="/", limits={"max-queues": -7}), "limit 'max-queues' of virtual host '/'", "a limit of -7"),
    (entry("permissions", **VHOSTED, user="x", configure="", write="", read=""), "permission of 'x'", "no such user"),
    (entry("permissions", **VHOSTED, user="there", configure="(?=a)", write="", read=""), "permission of 'there'", "a"),
    (
        entry("permissions", vhost="w", user="there", configure="", write="", read=""),
        "permission in virtual host 'w'",
        "there is no such virtual host",
    ),
    (
        entry("topic_permissions", **VHOSTED, user="x", exchange="e", write="", read=""),
        "topic permission for 'e' of 'x'",
        "no such user",
    ),
    *(
        (entry("parameters", **VHOSTED, component="operator_policy", name="o", value=value), "operator policy 'o'", why)
        for value, why in (
            ({}, "not written as one"),
            (3, "not written as one"),
            ({"pattern": "", "definition": {"max-length": 1}, "apply-to": "queues"}, "'max-length'"),
            ({"pattern": "(", "definition": {"expires": 1}}, "("),
        )
    ),
    (entry("parameters", **VHOSTED, component="shovel", name="s", value={}), "parameter of 'shovel' 's'", "no effect"),
    (
        entry("parameters", **VHOSTED, component="vhost-limits", name="limits", value=3),
        "parameter of 'vhost-limits' 'limits'",
        "numbers by their names",
    ),
    (
        entry("global_parameters", name="mqtt_port_to_vhost_mapping", value={}),
        "global parameter 'mqtt_port_to_vhost_mapping'",
        "no effect",
    ),
    (entry("policies", **VHOSTED, name="p", pattern="", definition={"ha-mode": "all"}), "policy 'p'", "'ha-mode'"),
    (entry("policies", **VHOSTED, name="p", pattern="", definition={}), "policy 'p'", "or expires"),
    (entry("policies", **VHOSTED, name="p", pattern="(", definition={"alternate-exchange": "e"}), "policy 'p'", "("),
    (
        entry(
            "policies",
            **VHOSTED,
            name="p",
            pattern="",
            definition={"alternate-exchange": "e"},
            **{"apply-to": "queues"},
        ),
        "policy 'p'",
        "'alternate-exchange' says nothing of queues",
    ),
    (entry("exchanges", **VHOSTED, name="e", type="x-delayed-message"), "exchange 'e'", "type 'x-delayed-message'"),
    (entry("exchanges", **VHOSTED, name="e", type="topic", durable=False), "exchange 'e'", "not durable"),
    (
        entry("exchanges", **VHOSTED, name="e", type="topic", arguments={"alternate-exchange": 1}),
        "exchange 'e'",
        "name",
    ),
    (entry("queues", **VHOSTED, name="q", durable=False), "queue 'q'", "not durable"),
    (entry("queues", **VHOSTED, name=""), "queue ''", "no name"),
    (entry("queues", **VHOSTED, name="q", arguments={"x-queue-type": "stream"}), "queue 'q'", "unsupported queue type"),
    (entry("queues", **VHOSTED, name="q", type="quorum"), "queue 'q'", "its arguments do not say so"),
    (
        entry("queues", **VHOSTED, name="q", arguments={"x-message-ttl": 1, "x-max-length": 1}),
        "queue 'q'",
        "x-max-length, x-message-ttl would have no effect here",
    ),
    (entry("queues", **VHOSTED, name="q", arguments={"x-message-ttl": "soon"}), "queue 'q'", "invalid arg"),
    (entry("queues", **VHOSTED, name="there", auto_delete=True), "queue 'there'", "declared otherwise"),
    (entry("exchanges", **VHOSTED, name="there", type="topic"), "exchange 'there'", "declared otherwise"),
    (
        entry("bindings", **VHOSTED, source="e", destination="there", destination_type="queue"),
        "binding of 'there' to 'e'",
        "there is no durable exchange 'e'",
    ),
    (
        entry("bindings", **VHOSTED, source="there", destination="q", destination_type="queue"),
        "binding of 'q' to 'there'",
        "there is no durable queue 'q'",
    ),
    (
        entry("bindings", **VHOSTED, source="there", destination="q", destination_type="exchange"),
        "binding of 'q' to 'there'",
        "there is no durable exchange 'q'",
    ),
    (
        entry("bindings", **VHOSTED, source="there", destination="q", destination_type="stream"),
        "binding of 'q' to 'there'",
        "a queue or to an exchange",
    ),
]


HEADERS = {"vhost": "/", "destination": "there", "destination_type": "queue"}
CANNOT_BE += [
    (
        entry("bindings", **HEADERS, source="amq.headers", arguments={"x-match": "foo"}),
        "binding of 'there' to 'amq.headers'",
        "Invalid x-match field value",
    ),
    (
        entry("bindings", **HEADERS, source="", routing_key="other"),
        "binding of 'there' to ''",
        "in no other way",
    ),
    (entry("queues", **VHOSTED, name="amq.foo"), "queue 'amq.foo'", "the broker's own"),
    (
        entry("queues", **VHOSTED, name="q", arguments={"big": 10**30}),
        "queue 'q'",
        "a number in it has more than 64 bits",
    ),
]


@pytest.fixture
def some() -> Held:
    """A user, a queue and an exchange are there."""
    held = Held()
    held.imported(
        json.dumps(
            {
                "users": [{"name": "there", "password": "p", "tags": []}],
                "queues": [{"vhost": "/", "name": "there", "arguments": {}}],
                "exchanges": [{"vhost": "/", "name": "there", "type": "fanout"}],
            }
        )
    )
    return held


@pytest.mark.parametrize(("file", "title", "why"), CANNOT_BE, ids=[f"{each[1]} {each[2]}" for each in CANNOT_BE])
def test_what_cannot_be_honoured_is_told(file: dict[str, Any], title: str, why: str, some: Held) -> None:
    found = some.read(json.dumps(file))
    assert [each.entry for each in found.left_out] == [title]
    assert why in found.left_out[0].why
    some.load(found.steps)


def test_what_leads_to_what_is_left_out_is_left_out(held: Held) -> None:
    file = {
        "vhosts": [{"name": "v", "tracing": True}],
        "queues": [{"vhost": "v", "name": "q"}, {"vhost": "/", "name": "q", "durable": False}],
        "bindings": [{"vhost": "/", "source": "amq.topic", "destination": "q", "destination_type": "queue"}],
    }
    assert [each.entry for each in held.read(json.dumps(file)).left_out] == [
        "virtual host 'v'", "queue in virtual host 'v'", "queue 'q'", "binding of 'q' to 'amq.topic'",
    ]  # fmt: skip


def test_a_virtual_host_that_is_being_deleted_is_not_written(held: Held) -> None:
    held.do(set_rule_step(Rule(VHOST, "v", "v", "", Vhost())))
    there = [each["name"] for each in written(held.state, "3.10.8")["vhosts"]]
    held.do(clear_rule_step(VHOST, "v", "v", ""))
    assert there == ["/", "v"] and [each["name"] for each in written(held.state, "3.10.8")["vhosts"]] == ["/"]


def test_what_is_always_there_and_what_describes_the_cluster_is_passed_over(held: Held) -> None:
    file = {
        "exchanges": [
            {"vhost": "/", "name": "", "type": "direct"},
            {"vhost": "/", "name": "amq.topic", "type": "topic"},
        ],
        "bindings": [{"vhost": "/", "source": "", "destination": "q", "destination_type": "queue", "routing_key": "q"}],
        "global_parameters": [{"name": "cluster_name", "value": "rabbit@host"}],
    }
    found = held.read(json.dumps(file))
    assert not found.steps and not found.left_out


def test_a_queue_that_is_the_same_by_the_brokers_rules_is_there_already(some: Held) -> None:
    file = entry("queues", vhost="/", name="there", arguments={"x-queue-type": "classic"})
    found = some.read(json.dumps(file))
    assert not found.left_out and not found.steps and found.counts == {"queues": 1}


def test_a_password_in_clear_is_hashed_where_the_file_is_read(held: Held) -> None:
    found = held.imported('{"users": [{"name": "u", "password": "correct horse", "tags": "a, b"}]}')
    user = held.contents.access.users["u"]
    assert user.tags == ("a", "b") and matches(user.hash, "correct horse")
    assert all(b"correct horse" not in step.arguments for step in found.steps)


def test_what_stands_twice_with_other_values_is_told(held: Held) -> None:
    """Of the two one would be lost, and who wrote the file knows which he wanted."""
    user = {"name": "u", "password_hash": base64.b64encode(bytes(36)).decode(), "tags": "a"}
    right = {"vhost": "/", "user": "u", "configure": "", "write": "", "read": ""}
    queue, binding = {"vhost": "/", "name": "q"}, {"vhost": "/", "source": "e", "destination": "q"}
    exchange = {"vhost": "/", "name": "e", "type": "direct"}
    of_queue = {**binding, "destination_type": "queue"}
    file = {
        "users": [user, user | {"tags": "administrator"}, user],
        "permissions": [right, right, right | {"read": ".*"}, right | {"user": "u", "write": ".*"}],
        "queues": [queue],
        "exchanges": [exchange, exchange | {"type": "topic"}],
        "bindings": [of_queue, of_queue | {"routing_key": "k"}, of_queue],
    }
    found = held.read(json.dumps(file))
    before, twice = "it stands in the file before, with other values", "twice in the file, and declared otherwise"
    assert [each.entry for each in found.left_out if each.why == before] == ["user 'u'", *["permission of 'u'"] * 2]
    assert [each.entry for each in found.left_out if twice in each.why] == ["exchange 'e'"]
    assert found.counts == {"users": 1, "permissions": 1, "queues": 1, "exchanges": 1, "bindings": 2}


NO_FILES = {
    "a key that stands twice": ('{"users": [], "queues": [], "users": []}', None, "the key 'users' stands twice"),
    "a key that stands twice in an entry": (
        '{"queues": [{"vhost": "/", "name": "q", "arguments": {"x": 1, "x": 2}}]}',
        None,
        "the key 'x' stands twice",
    ),
    "no JSON": ("{", None, "invalid json"),
    "a list": ("[]", None, "object"),
    "an unknown section": ('{"shovels": []}', None, "shovels: there is no such key"),
    "an unknown key": ('{"queues": [{"name": "q", "vhost": "/", "owner": "x"}]}', None, "queues.0.owner: there is no"),
    "a number for a text": ('{"users": [{"name": 7, "tags": []}]}', None, "users.0.name"),
    "a long name of few characters": (
        json.dumps({"queues": [{"name": "\u00fc" * 200, "vhost": "/"}]}),
        None,
        "255 bytes",
    ),
    "a long name": (json.dumps({"queues": [{"name": "q" * 256, "vhost": "/"}]}), None, "queues.0.name"),
    "no virtual host": ('{"queues": [{"name": "q"}]}', None, "give the virtual host"),
    "a virtual host that is not there": ('{"queues": []}', "v", "there is no virtual host 'v'"),
    "a cluster's for one": ('{"users": [{"name": "u", "tags": []}]}', "/", "it has users"),
    "another virtual host's": ('{"queues": [{"name": "q", "vhost": "v"}]}', "/", "something in virtual host 'v'"),
}


@pytest.mark.parametrize(("text", "vhost", "why"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_of_definitions_is_refused_as_a_whole(
    text: str, vhost: str | None, why: str, held: Held
) -> None:
    with pytest.raises(MalformedDocument) as refused:
        held.read(text, vhost)
    assert why in str(refused.value)


def test_a_file_of_more_than_one_import_can_have_is_refused(held: Held) -> None:
    queues = [{"name": f"q{number}", "vhost": "/"} for number in range(MOST_PARTS + 1)]
    with pytest.raises(MalformedDocument, match="split it"):
        held.read(json.dumps({"queues": queues}))
    assert len(held.read(json.dumps({"queues": queues[1:]})).steps) == MOST_PARTS


@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"h": "x" * (MOST_BYTES // 10)}, "bytes"), ({f"h{n}": n for n in range(MOST_VALUES // 10)}, "arguments")],
    ids=["bytes", "arguments"],
)
def test_a_file_with_more_in_it_than_one_import_can_have_is_refused(
    arguments: dict[str, Any], why: str, held: Held
) -> None:
    entry = {"source": "amq.headers", "vhost": "/", "destination": "q", "destination_type": "queue"}
    bindings = [{**entry, "routing_key": str(n), "arguments": arguments} for n in range(10)]
    queues = [{"name": "q", "vhost": "/"}]
    found = held.read(json.dumps({"queues": queues, "bindings": bindings[1:]}))
    assert not found.left_out and len(found.steps) == len(bindings)
    with pytest.raises(MalformedDocument, match=f"{why}.*split it"):
        held.read(json.dumps({"queues": queues, "bindings": [*bindings, {**bindings[1], "routing_key": "k"}]}))


def test_no_value_of_a_file_is_told_since_it_may_be_a_password(held: Held) -> None:
    with pytest.raises(MalformedDocument) as refused:
        held.read('{"users": [{"name": "u", "password": ["hidden"], "tags": [], "secret": "hidden"}]}')
    assert "hidden" not in str(refused.value)


def test_a_hash_by_scrypt_is_base64_in_a_file_since_rabbitmq_takes_no_other(held: Held) -> None:
    """It read two users of such a file and stopped: ``not_base64``."""
    held.imported('{"users": [{"name": "u", "password": "correct horse", "tags": []}]}')
    (user,) = written(held.state, "1")["users"]
    assert user["hashing_algorithm"] == "txha_password_hash"
    kept = held.contents.access.users["u"].hash
    assert b64decode(user["password_hash"], validate=True).decode() == kept
    other = Held()
    other.imported(as_json(written(held.state, "1")))
    assert other.contents.access.users["u"].hash == kept
    plain = json.dumps({"users": [{**user, "password_hash": kept}]})
    assert not other.imported(plain).left_out, "as the first files said it"
