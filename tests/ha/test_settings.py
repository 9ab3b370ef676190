"""The limits that no operator sets: the same as the documented ones, and in proportion to each other
(``ha.settings``)."""

from __future__ import annotations

from pathlib import Path

from broker_plugin.node.config import parse_config
from ha.settings import Settings

TEXT = 'name = "a"\ncluster = "c"\ndir = "/d"\ncoordination = "/r"\n[peer]\nport = 7\n'
TEXT += '[[peers]]\nname = "b"\nhost = "h"\nport = 8\n[[peers]]\nname = "c"\nhost = "h"\nport = 9\n'


def test_defaults_of_the_node_are_those_of_the_state_machines() -> None:
    """What the documents list are the node's; the tests of the state machines mostly take their own."""
    ours, theirs = parse_config(TEXT, Path("/node.toml"), {}, {}).core_settings(), Settings()
    others = {name for name in Settings.__dataclass_fields__ if getattr(ours, name) != getattr(theirs, name)}
    assert others == {"min_ready", "follow_members", "work"}, "no file says how many must be ready"
    assert (ours.min_ready, theirs.min_ready) == (2, 1), "a majority of the three nodes"
    assert ours.work._replace(client_bytes=theirs.work.client_bytes) == theirs.work, "a node bounds one client, too"


def test_one_limit_leaves_room_for_another() -> None:
    ours = Settings()
    assert 2 * ours.link_down_grace < ours.lease_ttl, "a blip is noticed before a lease ends"
    assert ours.renew_every <= ours.lease_ttl / 4, "several renewals may fail"
    assert ours.probe_timeout < ours.renew_every, "who asks for positions stands before the next look at the record"
    assert ours.probe_timeout < ours.rejoin_every < ours.lease_ttl, "a backup is back before the next take-over"
    assert ours.silence >= 3 * ours.heartbeat_every and 3 * ours.heartbeat_every <= ours.prepare_timeout
    assert ours.backup_timeout > ours.prepare_timeout + ours.lease_ttl, "who follows a new primary has more to do first"
    assert 0 < ours.lease_drift * ours.lease_ttl < ours.renew_every
    assert ours.portion_bytes < ours.frame_bytes < ours.window_bytes < ours.backlog_bytes < ours.recent_bytes
