"""What ``txha status`` is told of a primary's backups."""

from __future__ import annotations

from broker_plugin.node.readiness import Readiness
from broker_plugin.node.status import status
from tests.ha.steps import backups_of, declared, publish


def test_a_backup_s_lag_is_what_it_has_not_acknowledged() -> None:
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    backup.disk_held = True
    for number in range(3):
        publish(primary, "q", f"m{number}")
    cluster.pause(0.1)
    core = primary.core
    assert core.backups is not None
    held = core.backups.sessions[backup.name].acknowledged
    found = status(core, primary.name, Readiness(2, 1), "")["backups"][backup.name]
    assert found["state"] == "ready"
    assert found["lag_events"] == core.replica.tail.sequence - held > 0
