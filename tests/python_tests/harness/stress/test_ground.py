"""Network, disk and clock: what the suite does to them really happens, and is really over afterwards."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.disk import SmallDisk
from python_tests.harness.stress.namespaces import NetworkError, own_surroundings
from python_tests.harness.stress.network import CLIENTS, Impairment, Namespaces, Network, Proxied, Way
from python_tests.harness.waiting import wait_until
from tests.python_tests.harness.stress.surroundings import in_own_surroundings

pytestmark = pytest.mark.slice

PORT = 7001
ECHO = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
async def main():
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
ROUND_TRIP_SECONDS = 5.0
SILENCE_SECONDS = 0.4


@contextmanager
def echoing(network: Network, nodes: int) -> Iterator[None]:
    """Each node sends back what it gets."""
    command = [sys.executable, "-c", ECHO]
    servers = [
        subprocess.Popen(
            [*network.command(node), *command, network.host(node), str(PORT + node)], stdout=subprocess.PIPE, text=True
        )
        for node in range(nodes)
    ]
    try:
        for server in servers:
            assert server.stdout is not None and server.stdout.readline() == "ready\n"
        yield
    finally:
        for server in servers:
            server.kill()
            server.communicate()


@contextmanager
def open_network(network: Network, nodes: int) -> Iterator[Callable[..., bool]]:
    """The network with an echo at each node; gives ``answers(sender, to)``: whether a new connection gets through."""
    network.open()
    try:
        routes = {(a, b): network.route(a, b, PORT + b) for a in range(nodes) for b in range(nodes) if a != b}
        routes |= {(CLIENTS, node): (network.host(node), PORT + node) for node in range(nodes)}
        network.start_proxies()

        def exchange(place: tuple[str, int], seconds: float) -> bool:
            try:
                with socket.create_connection(place, seconds) as connection:
                    connection.sendall(b"hello")
                    return connection.recv(5) == b"hello"
            except OSError:
                return False

        def answers(sender: int, to: int, seconds: float = ROUND_TRIP_SECONDS) -> bool:
            def attempt() -> bool:
                return exchange(routes[sender, to], seconds)

            return attempt() if sender == CLIENTS else network.call(sender, attempt)

        with echoing(network, nodes):
            yield answers
    finally:
        network.close()


def both(node: int, other: int) -> frozenset[Way]:
    return frozenset({(node, other), (other, node)})


@in_own_surroundings
def test_namespaces_cut_what_is_named_and_nothing_else() -> None:
    with open_network(network := Namespaces(3, proxied=False), 3) as answers:
        assert answers(0, 1) and answers(2, 0) and answers(CLIENTS, 0)
        number = network.impose(Impairment(both(0, 1), loss=1.0))
        assert not answers(0, 1, SILENCE_SECONDS) and not answers(1, 0, SILENCE_SECONDS)
        assert answers(0, 2) and answers(1, 2) and answers(CLIENTS, 0) and answers(CLIENTS, 1)
        assert network.lift(number) > 0
        assert answers(0, 1) and answers(1, 0)


@in_own_surroundings
def test_a_cut_of_one_way_drops_packets_of_that_way_only() -> None:
    with open_network(network := Namespaces(2, proxied=False), 2) as answers:
        number = network.impose(Impairment(frozenset({(0, 1)}), loss=1.0))
        assert not answers(0, 1, SILENCE_SECONDS), "what is asked does not arrive"
        assert network.lift(number) > 0
        unused = network.impose(Impairment(frozenset({(1, 0)}), loss=1.0))
        assert network.lift(unused) == 0, "nothing was sent meanwhile, so nothing was hit"


@in_own_surroundings
def test_clients_are_cut_off_when_that_is_what_the_fault_says() -> None:
    with open_network(network := Namespaces(2, proxied=False), 2) as answers:
        number = network.impose(Impairment(both(0, CLIENTS), loss=1.0))
        assert not answers(CLIENTS, 0, SILENCE_SECONDS)
        assert answers(CLIENTS, 1) and answers(1, 0)
        assert network.lift(number) > 0
        assert answers(CLIENTS, 0)


@in_own_surroundings
def test_impairments_may_overlap_and_lost_packets_are_sent_again() -> None:
    with open_network(network := Namespaces(2, proxied=False), 2) as answers:
        cut = network.impose(Impairment(both(0, 1), loss=1.0))
        lossy = network.impose(Impairment(both(0, 1), loss=0.3))
        network.lift(cut)
        for _ in range(6):
            answers(0, 1, 2 * SILENCE_SECONDS)
        assert network.lift(lossy) > 0
        assert answers(0, 1)


@in_own_surroundings
def test_proxies_in_namespaces_make_delay() -> None:
    with open_network(network := Namespaces(2, proxied=True), 2) as answers:
        number = network.impose(Impairment(both(0, 1), delay=0.05))
        assert answers(0, 1)
        assert network.lift(number) >= 2, "one piece there, one back"
        cut = network.impose(Impairment(both(0, 1), loss=1.0))
        assert not answers(0, 1, SILENCE_SECONDS), "the packets between proxy and node are dropped too"
        network.lift(cut)
        assert answers(0, 1)


def test_namespaces_need_a_network_of_their_own_only_once() -> None:
    """A thread's own network is not the others'."""
    before = Path("/proc/thread-self/ns/net").readlink()
    inside: list[Path] = []

    def enter() -> None:
        own_surroundings()
        inside.append(Path("/proc/thread-self/ns/net").readlink())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert inside[0] != before == Path("/proc/thread-self/ns/net").readlink()


def test_proxies_on_loopback_cut_delay_and_lose() -> None:
    with open_network(network := Proxied(3), 3) as answers:
        assert answers(0, 1) and answers(1, 0)
        number = network.impose(Impairment(frozenset({(1, 0)}), loss=1.0))
        assert not answers(0, 1, SILENCE_SECONDS) and not answers(1, 0, SILENCE_SECONDS), "no answer, no question"
        assert answers(0, 2) and answers(2, 1)
        assert network.lift(number) > 0
        assert answers(0, 1) and answers(1, 0)
        for impairment in (Impairment(both(0, 1), delay=0.02), Impairment(both(0, 1), loss=0.5)):
            number = network.impose(impairment)
            assert all(answers(0, 1) for _ in range(10))
            assert network.lift(number) > 0


def test_what_a_proxy_holds_back_comes_when_the_cut_is_over() -> None:
    network = Proxied(2)
    routes = {(a, b): network.route(a, b, PORT + b) for a, b in ((0, 1), (1, 0))}
    network.start_proxies()
    try:
        with echoing(network, 2), socket.create_connection(routes[0, 1], ROUND_TRIP_SECONDS) as connection:
            connection.sendall(b"one")
            assert connection.recv(3) == b"one"
            number = network.impose(Impairment(frozenset({(0, 1)}), loss=1.0))
            connection.sendall(b"two")
            connection.settimeout(SILENCE_SECONDS)
            with pytest.raises(TimeoutError):
                connection.recv(3)
            assert network.lift(number) > 0
            connection.settimeout(ROUND_TRIP_SECONDS)
            assert connection.recv(3) == b"two"
    finally:
        network.close()


def test_connections_of_a_proxy_are_reset_and_others_are_not() -> None:
    network = Proxied(3)
    here, there = network.route(0, 1, PORT + 1), network.route(0, 2, PORT + 2)
    network.start_proxies()
    try:
        with (
            echoing(network, 3),
            socket.create_connection(here, ROUND_TRIP_SECONDS) as hit,
            socket.create_connection(there, ROUND_TRIP_SECONDS) as spared,
        ):
            for each in (hit, spared):
                each.sendall(b"one")
                assert each.recv(3) == b"one"
            assert network.reset(1, 0) == 1
            with contextlib.suppress(ConnectionResetError):
                assert hit.recv(3) == b""
            spared.sendall(b"two")
            assert spared.recv(3) == b"two"
    finally:
        network.close()


def test_nothing_can_be_done_to_plain_loopback() -> None:
    with pytest.raises(NetworkError):
        Network().impose(Impairment(both(0, 1), loss=1.0))


@in_own_surroundings
def test_a_small_disk_is_full_and_roomy_again(tmp_path: Path) -> None:
    place = tmp_path / "node"
    place.mkdir()
    (place / "before").write_bytes(b"x" * 5000)
    disk = SmallDisk(place)
    disk.mount()
    (place / "data").write_bytes(b"y" * 100_000)
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        (place / "more").write_bytes(b"z" * 10_000)
    disk.free()
    (place / "more").write_bytes(b"z" * 10_000)
    disk.unmount()
    assert {each.name: each.stat().st_size for each in place.iterdir()} == {
        "before": 5000, "data": 100_000, "more": 10_000,
    }  # fmt: skip
    assert not place.is_mount()


@in_own_surroundings
def test_a_disk_is_made_full_while_somebody_writes_to_it(tmp_path: Path) -> None:
    place, ended = tmp_path / "node", threading.Event()
    place.mkdir()
    disk = SmallDisk(place)
    disk.mount()

    def write() -> None:
        with (place / "log").open("wb", buffering=0) as log:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    log.write(bytes(1 << 14))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(20):
        disk.fill()
        disk.free()
    ended.set()
    writer.join()
    disk.unmount()


def test_a_clock_moves_while_its_process_runs_and_the_monotonic_one_stays(tmp_path: Path) -> None:
    assert FakeClock.why_not() is None, FakeClock.why_not()
    clock = FakeClock(tmp_path / "clocks")
    program = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clock.environment("node-1"),
    )
    assert process.stdin is not None and process.stdout is not None

    def hours_off() -> int:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("now\n")
        process.stdin.flush()
        wall, monotonic = map(float, process.stdout.readline().split())
        assert abs(monotonic - time.monotonic()) < 1800
        return round((wall - time.time()) / 3600)

    try:
        assert hours_off() == 0
        for hours in (2, -1, 0):
            clock.move("node-1", hours * 3600)
            wait_until(lambda hours=hours: hours_off() == hours, 20, f"a clock that is {hours} h off", every=0.1)  # type: ignore[misc]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()
