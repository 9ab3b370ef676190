"""Real nodes whose links are over TLS: nothing readable passes between them, and everything holds as it did."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.pipeline.remote import RemoteLog
from recovery.reader.tls_socket import ReaderCertificate
from tests.support.encrypted_cluster import NUMBERS, EncryptedCluster, wait_until

QUEUE, BODY = "queue-of-which-none-may-read", "a-body-of-which-none-may-read"
READABLE = [QUEUE.encode(), BODY.encode(), b"orders", b"node-", b"guest", b"127.0.0.1", b"txha"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EncryptedCluster]:
    made = EncryptedCluster(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_nothing_that_passes_between_nodes_can_be_read_and_commits_outlive_the_primary(
    cluster: EncryptedCluster,
) -> None:
    """No secret stands anywhere: certificates alone prove who is who. A reader follows with one of its own."""
    for number in NUMBERS:
        cluster.write(number, "tls = true")
    cluster.found()
    assert not (cluster.directory / "cluster.secret").exists()
    cluster.start(*NUMBERS)
    wait_until(lambda: cluster.ready(3), "three ready nodes")
    cluster.commit(QUEUE, *(f"{BODY}-{number}" for number in range(50)))
    first = cluster.primary()
    assert first is not None
    cluster.stop(first, signal.SIGKILL)
    wait_until(lambda: cluster.ready(2), "another primary")
    cluster.commit(QUEUE, f"{BODY}-50")
    cluster.start(first)
    wait_until(lambda: cluster.ready(3), "the former primary as a backup")
    reader = cluster.authority.holder("reader", "spark")
    files = ReaderCertificate(*(str(reader / f"{name}.pem") for name in ("certificate", "key", "authority")))
    log = RemoteLog(f"127.0.0.1:{cluster.ways[1, 2].port}", "orders", certificate=files)
    wait_until(lambda: log.extent().last > 50, "the log of a node")
    log.close()
    passed = cluster.recorded()
    assert len(passed) > 100 * len(BODY), "the stream has passed there"
    assert not [each for each in READABLE if each in passed]
    begun = [first for way in cluster.ways.values() for first in way.begun]
    assert len(begun) >= 6 and {first[:2] for first in begun} == {b"\x16\x03"}
    assert cluster.waiting(QUEUE) == {f"{BODY}-{number}" for number in range(51)}
    assert "closing the connection" not in "".join(map(cluster.log, NUMBERS))


@pytest.mark.timeout(1800)
def test_a_running_cluster_is_switched_over_from_clear_to_tls(cluster: EncryptedCluster) -> None:
    """Node by node, twice round; each step commits. In the end what passes cannot be read, and what is in clear is
    refused with a line on both sides."""
    for number in NUMBERS:
        cluster.write(number, "", tls=False)
    cluster.found()
    cluster.start(*NUMBERS)
    wait_until(lambda: cluster.ready(3), "three ready nodes")
    cluster.commit(QUEUE, f"{BODY}-clear")
    assert all(each in cluster.recorded() for each in READABLE[:4]), "the recorders see what can be seen"
    secret = 'secret = "@cluster.secret"'
    for step in ('tls = "accept"', f"tls = true\n{secret}"):
        for number in NUMBERS:
            cluster.stop(number)
            cluster.write(number, step)
            cluster.start(number)
            wait_until(lambda: cluster.ready(3), f"node-{number} with {step}")
            cluster.commit(QUEUE, f"{BODY}-{step}-{number}")
    cluster.forget()
    cluster.commit(QUEUE, f"{BODY}-encrypted")
    wait_until(lambda: len(cluster.recorded()) > 1000, "something that passes")
    assert not [each for each in READABLE if each in cluster.recorded()]
    assert "closing the connection" not in "".join(map(cluster.log, NUMBERS)), "no step has cut a link"
    cluster.stop(3)
    cluster.write(3, "", tls=False)
    cluster.start(3)
    wait_until(lambda: "it speaks TLS only (peer.tls)" in cluster.log(3), "a line of the node in clear")
    wait_until(lambda: "it begins TLS, and this node speaks none (peer.tls)" in cluster.log(3), "another one")
    ends = 'it ends the connection where TLS begins: it may have no peer.tls; give it "accept"'
    wait_until(lambda: ends in cluster.log(1) and ends in cluster.log(2), "a line of the others")
    cluster.commit(QUEUE, f"{BODY}-without")
    assert len(cluster.waiting(QUEUE)) == 9
