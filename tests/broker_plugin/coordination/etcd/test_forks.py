"""A process that speaks with etcd forks, to look at a store that may be damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.broker_plugin.coordination.contract import place_below

PROGRAM = """
import sys, threading
from contextlib import closing
from pathlib import Path
from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.place import EtcdPlace
from ha.membership.record import Record
from recovery.store.child import in_a_child
from txobserver.ids import Member

place, member, ended = EtcdPlace.of_url(sys.argv[1].removeprefix('etcd://')), Member("a", "a1"), threading.Event()

def renew(version):
    with closing(EtcdCoordination(place, "cluster")) as primary:
        while not ended.wait(0.001):
            version = primary.compare_and_set(version, record).version

with closing(EtcdCoordination(place, "cluster", create=True)) as store:
    record = store.compare_and_set(0, Record("cluster", 1, 1, member, (member,), cluster_id="0" * 32))
renewing = threading.Thread(target=renew, args=(record.version,), daemon=True)
renewing.start()
for _ in range(400):
    in_a_child(lambda: None, Path("store"))
ended.set()
renewing.join()
print("done")
"""


def test_a_fork_beside_a_busy_channel(tmp_path: Path) -> None:
    """``a_fork_beside_a_busy_channel``: the parent hung in it, or a sound store was called damaged."""
    command = [sys.executable, "-c", PROGRAM, place_below(tmp_path).url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
