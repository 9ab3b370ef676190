"""An etcd beside the nodes: where its members run, who reaches them, and what the faults of the store alone do."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.cluster.plan import plan_cluster
from broker_plugin.coordination.address import store_at
from broker_plugin.coordination.etcd.place import SCHEME, EtcdPlace
from broker_plugin.node.config import load_config
from python_tests.harness.cluster import free_base_port
from python_tests.harness.history import History
from python_tests.harness.stress.fault import Ground, process_state
from python_tests.harness.stress.members import Members
from python_tests.harness.stress.network import Impairment, Namespaces, Network
from python_tests.harness.stress.own import impossible
from python_tests.harness.stress.store_faults import (
    STORE_FAULTS,
    EtcdAll,
    EtcdCut,
    EtcdDelay,
    EtcdKill,
    EtcdLeader,
    EtcdStop,
)
from python_tests.harness.waiting import wait_until
from tests.python_tests.harness.stress.surroundings import in_own_surroundings

pytestmark = pytest.mark.slice

PATIENCE = 60.0
ETCDCTL = ("etcdctl", "--command-timeout=2s", "--dial-timeout=2s")


@dataclass
class Standing:
    """Stands for a cluster: no node runs."""

    members: Members
    network: Network
    count: int = 3

    @property
    def names(self) -> list[str]:
        return [f"node-{number + 1}" for number in range(self.count)]

    def index(self, name: str) -> int:
        return self.names.index(name)

    def make(self, kind: type[Any], seed: int = 1) -> Any:
        """A fault of this kind, of node-1."""
        return kind(Ground(self, History(), random.Random(seed), lambda text: None), "node-1")  # type: ignore[arg-type]


@contextmanager
def standing(network: Network, directory: Path) -> Iterator[Standing]:
    members = Members(network, 3, directory)
    network.open()
    try:
        network.start_proxies()
        members.start()
        yield Standing(members, network)
    finally:
        members.stop()
        network.close()


def reached(place: Standing, host: int, member: int) -> bool:
    """Whether a program on this host gets an answer of this member, be it one that no majority has confirmed."""
    hosts = place.members.hosts
    endpoint = f"--endpoints=http://{hosts.known_at(member)}:{hosts.ports[member]}"
    command = [*place.network.command(host), *ETCDCTL, endpoint, "get", "--consistency=s", "/"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def works(place: Standing, member: int) -> bool:
    """Whether a member answers a reading by a majority; asked on its own host."""
    hosts = place.members.hosts
    endpoint = f"--endpoints=http://{hosts.known_at(member)}:{hosts.ports[member]}"
    command = [*place.network.command(member), *ETCDCTL, endpoint, "get", "/"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_members_on_loopback_end_hang_and_lead_as_the_faults_say(tmp_path: Path) -> None:
    with standing(Network(), tmp_path / "etcd") as place:
        members = place.members
        for kind in (EtcdKill, EtcdStop, EtcdAll):
            fault = place.make(kind)
            fault.begin()
            assert not works(place, 0)
            assert works(place, 1) == (kind is not EtcdAll)
            assert fault.leaseless() == (set(place.names) if kind is EtcdAll else set())
            assert fault.heal()
            wait_until(members.well, PATIENCE, "every member again")
        done = set()
        for seed in range(20):
            fault, was = place.make(EtcdLeader, seed), members.leader()
            how = fault.begin()
            if how.split()[0] not in done:
                wait_until(lambda: works(place, (was + 1) % 3), PATIENCE, "another leader")  # noqa: B023
                assert members.leader() != was
            done.add(how.split()[0])
            assert fault.heal()
            wait_until(members.well, PATIENCE, "every member again")
            if len(done) == 2:
                break
        assert done == {"SIGKILL", "etcd"}, "killed and moved"


def test_a_fault_that_hits_nothing_says_so(tmp_path: Path) -> None:
    with standing(Network(), tmp_path / "etcd") as place:
        first, second = place.make(EtcdKill), place.make(EtcdKill)
        first.begin()
        second.begin()
        with pytest.raises(LookupError):
            place.make(EtcdStop).begin()
        assert not second.heal() and first.heal()


def test_leadership_does_not_go_to_a_frozen_member(tmp_path: Path) -> None:
    """Another fault may have frozen it; the suite once ended there with a traceback."""
    with standing(Network(), tmp_path / "etcd") as place:
        members, leader = place.members, place.members.leader()
        others = [member for member in range(3) if member != leader]
        draws = next(seed for seed in range(20) if random.Random(seed).choice(others) == others[0])
        with members.frozen(others[0]), pytest.raises(LookupError, match=f"member {others[0]} of etcd does not answer"):
            members.move_leader(random.Random(draws))
        wait_until(members.well, PATIENCE, "every member again")


def test_a_member_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    """Until its end is seen it may only not be well, which is no error."""
    with standing(Network(), tmp_path / "etcd") as place:
        with place.members.frozen(0) as pid:
            pass
        subprocess.run(["kill", "-9", str(pid)], check=True)
        with pytest.raises(RuntimeError, match="etcd ended"):
            wait_until(lambda: place.members.well() is None, PATIENCE, "an error")


@in_own_surroundings
def test_each_member_has_its_node_s_host_and_shares_its_faults() -> None:
    """A cut of a host takes its member from the others; what is cut of etcd alone leaves the rest of the host alone."""
    with standing(Namespaces(3, proxied=False), directory()) as place:
        network = place.network
        assert all(reached(place, host, member) for host in range(3) for member in range(3))
        number = network.impose(Impairment(frozenset({(0, 1), (1, 0), (0, 2), (2, 0)}), loss=1.0))
        wait_until(lambda: not works(place, 0) and works(place, 1), PATIENCE, "a majority without member 0")
        assert reached(place, 0, 0) and not reached(place, 0, 1) and not reached(place, 1, 0)
        assert network.lift(number) > 0
        wait_until(place.members.well, PATIENCE, "every member again")


def cuts(place: Standing) -> dict[bool, EtcdCut]:
    """By whether the node is cut off, and not its member."""
    found = {}
    for seed in range(20):
        fault = place.make(EtcdCut, seed)
        fault.impairments()
        found[fault.done().startswith("node-1")] = place.make(EtcdCut, seed)
    return found


@pytest.mark.every
@in_own_surroundings
def test_a_cut_of_etcd_s_traffic_alone() -> None:
    with standing(Namespaces(3, proxied=False), directory()) as place:
        node, member = (cuts(place)[of_the_node] for of_the_node in (True, False))
        node.begin()
        assert not any(reached(place, 0, each) for each in range(3)), "not even its own"
        assert all(reached(place, 1, each) for each in range(3)) and works(place, 1)
        assert node.leaseless() == {"node-1"} and not node.cut_off()
        assert pings(place, 0, 1)
        place.members.kill([2])
        wait_until(lambda: works(place, 1), PATIENCE, "a majority of members 0 and 1, which reach each other")
        place.members.start_again()
        assert node.heal()
        assert all(reached(place, 0, each) for each in range(3))
        member.begin()
        wait_until(lambda: not works(place, 0) and works(place, 1), PATIENCE, "a majority without member 0")
        assert reached(place, 0, 0) and not reached(place, 1, 0) and not reached(place, 0, 1)
        assert pings(place, 0, 1) and pings(place, 1, 0)
        assert member.heal()
        wait_until(place.members.well, PATIENCE, "every member again")


@pytest.mark.every
@in_own_surroundings
def test_etcd_s_traffic_is_late_by_the_proxies_of_each_host_and_cut_with_it() -> None:
    with standing(Namespaces(3, proxied=True), directory()) as place:
        assert all(reached(place, host, member) for host in range(3) for member in range(3))
        fault = place.make(EtcdDelay)
        fault.begin()
        assert reached(place, 0, 1) and works(place, 2)
        assert not fault.leaseless()
        assert fault.heal(), "it was late"
        links = place.network.impose(Impairment(frozenset({(0, 1), (1, 0)}), delay=0.05, served=frozenset({(1, 1)})))
        assert reached(place, 0, 1)
        assert place.network.lift(links) == 0, "nothing was dialled there"
        node = cuts(place)[True]
        node.begin()
        assert not any(reached(place, 0, each) for each in range(3)) and reached(place, 1, 0)
        assert node.heal()
        cut = place.network.impose(Impairment(frozenset({(0, 1), (1, 0)}), loss=1.0))
        assert not reached(place, 0, 1) and reached(place, 0, 2)
        assert place.network.lift(cut) > 0
        with closing(place.members.record.open("c")) as record:
            assert record.read() is None, "the clients' end goes straight there"


def pings(place: Standing, host: int, other: int) -> bool:
    """Whether anything else gets from a host to another and back: a refusal does."""
    program = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 9), 2)\n"
        "except ConnectionRefusedError: sys.exit(0)\n"
        "sys.exit(1)"
    )
    command = [*place.network.command(host), sys.executable, "-c", program, place.network.host(other)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def directory() -> Path:
    """A test in surroundings of its own gets no fixtures; the members' files go with the mounts of its thread."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=True)
    return Path("/mnt/etcd")


def test_the_record_of_a_planned_cluster_is_moved_to_etcd(tmp_path: Path) -> None:
    plan = plan_cluster(tmp_path / "c", 3, free_base_port(3), ["min_ready=2"])
    members = Members(Network(), 3, tmp_path / "etcd")
    moved = members.keeping_the_record(plan)
    moved.write()
    for entry in plan.entries:
        config = load_config(entry.directory / "node.toml", {}, {})
        assert config.coordination == members.record and config.min_ready == 2 and config.timing.lease_ttl == 4.0
    place = EtcdPlace.of_url(str(members.record).removeprefix(SCHEME))
    assert len(place.members) == 3 and store_at(place.url) == members.record


def test_members_end_with_the_suite(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from python_tests.harness.stress.members import Members\n"
        "from python_tests.harness.stress.network import Network\n"
        "members = Members(Network(), 1, Path(sys.argv[1]))\nmembers.start()\n"
        "with members.frozen(0) as pid: pass\nprint(pid, flush=True)\ntime.sleep(600)"
    )
    suite = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "e")], stdout=subprocess.PIPE, text=True)
    assert suite.stdout is not None
    pid = int(suite.stdout.readline())
    assert process_state(pid) not in ("", "Z")
    suite.send_signal(signal.SIGKILL)
    suite.communicate()
    wait_until(lambda: process_state(pid) in ("", "Z"), 20, "the end of the member")


def test_what_is_not_possible_with_a_store_is_said() -> None:
    kinds = [fault.kind for fault in STORE_FAULTS]
    reasons = impossible([*kinds, "lost-record", "kill"], "none", 3, "sqlite")
    assert reasons == dict.fromkeys(kinds, "there is no etcd: give --coordination etcd")
    reasons = impossible([*kinds, "lost-record", "kill"], "proxies", 3, "etcd")
    assert reasons["lost-record"] == "there is no coordination file: the record is in etcd"
    assert set(reasons) == {"etcd-cut", "etcd-delay", "lost-record"}
    assert impossible(["etcd-cut"], "auto", 1, "etcd")["etcd-cut"].startswith("a single node has no other")
