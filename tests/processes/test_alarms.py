"""Each node of a cluster says at its door which nodes are short of memory or of disk, and of which it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.waiting import wait_until
from tests.processes.test_http import NAMES, Door
from tests.processes.test_memory_alarm import MARKS, channel_to, fill_up
from tests.processes.test_users import taken_over

CHECK = "/api/health/checks/alarms"
WELL = 200, {"status": "ok"}


def all_say(door: Door, nodes: list[int], answer: tuple[int, Any]) -> None:
    """Each of these nodes gives this answer in the end."""
    for node in nodes:
        wait_until(lambda node=node: door.ask(node, CHECK, "guest", "guest") == answer, 30, f"{answer} of node {node}")


def failed(node: int, resource: str) -> tuple[int, dict[str, Any]]:
    alarms = [{"node": NAMES[node], "resource": resource}]
    return 503, {"status": "failed", "reason": "There are alarms in effect in the cluster", "alarms": alarms}


def shown(door: Door, asked: int, node: int) -> dict[str, Any]:
    """What one node says of another, without what only that one knows."""
    status, found = door.ask(asked, f"/api/nodes/{NAMES[node]}", "guest", "guest")
    assert status == 200, found
    return {key: found[key] for key in ("running", "mem_alarm", "disk_free_alarm") if key in found}


def memory_of_the_primary(cluster: LocalCluster, door: Door, primary: int) -> None:
    """It is filled with messages until its alarm is on, and emptied."""
    other = (primary + 1) % 3
    with channel_to(cluster, primary) as publisher, channel_to(cluster, primary) as emptying:
        fill_up(publisher, emptying)
        all_say(door, [0, 1, 2], failed(primary, "memory"))
        assert shown(door, other, primary) == {"running": True, "mem_alarm": True, "disk_free_alarm": False}
        assert shown(door, other, other) == {"running": True, "mem_alarm": False, "disk_free_alarm": False}
        local = "/api/health/checks/local-alarms"
        assert [door.ask(node, local, "guest", "guest")[0] for node in (primary, other)] == [503, 200]
        emptying.queue_delete("q")
        all_say(door, [0, 1, 2], WELL)


def disk_of_a_backup(cluster: LocalCluster, door: Door, backup: int) -> None:
    """It ends, comes back with a disk that is too full for its limit, and then with its former limit."""
    others = [node for node in range(3) if node != backup]
    for settings, answer in (([f"store.disk_free_bytes={1 << 60}"], failed(backup, "disk")), ([], WELL)):
        cluster.kill(NAMES[backup])
        all_say(door, others, (200, {"status": "ok", "not_known": [NAMES[backup]]}))
        assert shown(door, others[0], backup) == {"running": False}
        cluster.start_node(NAMES[backup], settings=settings)
        all_say(door, [0, 1, 2], answer)
        assert shown(door, others[0], backup) == {
            "running": True, "mem_alarm": False, "disk_free_alarm": answer is not WELL
        }  # fmt: skip


def test_alarms_of_all_nodes_are_known_to_each(tmp_path: Path) -> None:
    base = free_base_port(3)
    door = Door(base)
    with LocalCluster(tmp_path / "c", 3, "--http-port", str(base), *MARKS) as cluster:
        wait_until(lambda: taken_over(tmp_path / "c"), 30, "users")
        wait_until(cluster.all_ready, 30, "all nodes ready")
        all_say(door, [0, 1, 2], WELL)
        primary = NAMES.index(cluster.primary() or "")
        memory_of_the_primary(cluster, door, primary)
        disk_of_a_backup(cluster, door, (primary + 1) % 3)
