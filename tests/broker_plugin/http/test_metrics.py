"""Metrics as a collector reads them: their names, their kinds, and what becomes of what is not known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from broker_plugin.http.app import metrics_app, operators_app
from broker_plugin.http.metrics import ALL, OF_QUEUES, Row, process_values, queue_families, text_of
from tests.broker_plugin.http.fake_node import FakeNode, basic

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
COUNTED = dict.fromkeys(
    ("received", "received_confirm", "confirmed", "routed", "unroutable_returned", "unroutable_dropped", "get_empty",
     "delivered_consume_manual", "delivered_consume_auto", "delivered_get_manual", "delivered_get_auto", "redelivered",
     "acknowledged", "connections_opened", "connections_closed", "channels_opened", "channels_closed",
     "transactions_committed", "transactions_failed", "transactions_rolled_back"), 3,
)  # fmt: skip
VALUES = {
    "active": 1, "ready": 1, "generation": 4, "take_overs": 2, "commit_point": 96, "applied": 95, "tail": 100,
    "ready_nodes": 2, "min_ready": 2, "nodes": 3, "waits_for_operator": 0, "lease_margin": 2.5, "turns": 8,
    "long_turns": 2, "longest_turn": 0.5, "syncs": 5, "synced_bytes": 600, "writer_queue": 1, "calls_behind": 0,
    "call_fails": 0, "transactions_open": 2, "transactions_prepared": 3, "branches_in_doubt": 2,
    "oldest_in_doubt": 3.0, "queues_declared": 1, "memory_alarm": 1, "disk_alarm": 0, "memory_held": 5,
    "memory_high": 9, "disk_free": 3, "disk_least": 1, "connections": 6, "certificate_expires": 3600.0,
}  # fmt: skip
BACKUP = {"ready": 1, "lag_events": 10, "lag_bytes": 77, "lag_seconds": 0.5, "trackers": 2}


def said() -> dict[str, Any]:
    return {
        "node": 'a "quoted"\n', "cluster": "c", "cluster_id": "i", "core": "pure", "pid": 1, "counted": dict(COUNTED),
        "backups": {"b": dict(BACKUP), "c": dict(BACKUP)}, "values": dict(VALUES),
    }  # fmt: skip


@pytest.fixture
def node() -> FakeNode:
    node = FakeNode()
    node.answers["metrics.node"] = said()
    node.answers["metrics.totals"] = {"queues": 2, "ready": 3, "unacknowledged": 4, "consumers": 5}
    node.answers["metrics.queues"] = {"walk": 1, "next": None, "rows": [["q/1", 1, 2, 3, "/"], ['"\\\n', 0, 0, 0, "v"]]}
    return node


@pytest.fixture
def client(node: FakeNode) -> TestClient:
    return TestClient(metrics_app(node))


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_everything_that_is_listed_is_exported_once(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    of_process = {"rabbitmq_process_resident_memory_bytes", "rabbitmq_process_open_fds", "rabbitmq_process_max_fds"}
    assert found.keys() | of_process == {each.exported for each in ALL}
    assert all(len(rows) == (2 if name.startswith("txha_backup_") else 1) for name, rows in found.items())
    delivered = found["rabbitmq_global_messages_delivered_total"]
    assert delivered == [({"protocol": "amqp091"}, 12.0)]
    assert found["rabbitmq_queue_messages"] == [({}, 7.0)] and found["rabbitmq_channels"] == [({}, 0.0)]
    assert found["txha_backup_lag_seconds"][1] == ({"backup": "c"}, 0.5)
    assert found["rabbitmq_identity_info"][0][0]["rabbitmq_node"] == 'a "quoted"\n'


def test_names_are_listed_once_and_counters_are_counters() -> None:
    names = [each.exported for each in ALL]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"(rabbitmq|txha)_[a-z0-9_]+", name) for name in names)
    assert {each.key for each in ALL if each.kind == "counter"} >= COUNTED.keys()


def test_the_page_lists_what_is_exported() -> None:
    rows = re.findall(r"^\| `((?:rabbitmq|txha)_\w+)` \| (gauge|counter) \|", PAGE, re.MULTILINE)
    listed = {each.exported: each.kind for each in (*ALL, *OF_QUEUES)}
    assert dict(rows) == listed and len(rows) == len(listed)


def test_what_is_not_known_is_left_out(client: TestClient, node: FakeNode) -> None:
    node.answers["metrics.node"] |= {"counted": {}, "backups": {}}
    node.answers["metrics.node"]["values"] |= {"lease_margin": None, "active": 0, "connections": None}
    found = samples(client.get("/metrics").text)
    gone = {"txha_lease_margin_seconds", "rabbitmq_connections", "rabbitmq_queues", "txha_backup_ready"}
    assert not gone & found.keys() and not any(name.startswith("rabbitmq_global") for name in found)


def test_each_queue_page_after_page(client: TestClient, node: FakeNode) -> None:
    found = samples(client.get("/metrics/per-object").text)
    assert found.keys() == {each.exported for each in OF_QUEUES}
    assert found["rabbitmq_queue_messages"] == [
        ({"vhost": "/", "queue": "q/1"}, 3.0),
        ({"vhost": "v", "queue": '"\\\n'}, 0.0),
    ]
    first, last = [["a", 1, 0, 0, "/"]], [["b", 2, 0, 0, "/"]]
    pages = [{"walk": 7, "next": 1000, "rows": first}, {"walk": 7, "next": None, "rows": last}]

    class Paged(FakeNode):
        async def ask(self, command: str, arguments: Any = None, seconds: float = 0) -> Any:
            self.asked.append((command, arguments))
            return pages[len(self.asked) - 1]

    paged = Paged()
    found = samples(TestClient(metrics_app(paged)).get("/metrics/per-object").text)
    assert [labels["queue"] for labels, _ in found["rabbitmq_queue_messages"]] == ["a", "b"]
    assert [each for _, each in paged.asked] == [{"walk": 0, "at": 0}, {"walk": 7, "at": 1000}]


def test_a_node_that_does_not_answer_has_no_metrics(client: TestClient, node: FakeNode) -> None:
    node.down = True
    assert client.get("/metrics").status_code == client.get("/metrics/per-object").status_code == 503


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_at_the_door_they_want_a_login(path: str, node: FakeNode) -> None:
    door = TestClient(operators_app(node))
    assert door.get(path).status_code == 401 and door.get(path, headers=basic("man")).status_code == 401
    assert door.get(path, headers=basic("mon")).status_code == 200


@pytest.mark.parametrize("path", ["/api/whoami", "/api/users", "/api/txha/calls"])
def test_the_port_of_metrics_has_nothing_else(path: str, client: TestClient) -> None:
    assert client.get(path, headers=basic("ada")).status_code == 404
    assert client.get("/health/live").status_code == 200


@pytest.mark.every
def test_a_hundred_thousand_queues() -> None:
    rows: list[Row] = [(f"queue-{number}", number, 1, 0, "/") for number in range(100_000)]
    text = text_of(queue_families(rows))
    assert text.count(b"\n") == 4 * (100_000 + 2) and b'queue="queue-99999"' in text


def test_what_cannot_be_read_of_a_process_is_left_out(tmp_path: Path) -> None:
    assert process_values(1, tmp_path) == {}
    own = process_values(__import__("os").getpid())
    assert own["resident"] > 1 << 20 and 0 < own["open_fds"] < own["max_fds"]
