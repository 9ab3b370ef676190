"""A commit while fewer than ``min_ready`` nodes are ready: closed with 406, and nothing of it remains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product

import pytest

from python_tests.conftest import Start
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.history import FAILED, OK
from python_tests.suites.tx.clients import MAKES, TxClient, drained, fill
from python_tests.suites.tx.conftest import Open
from tests.support.cases import some_of

PATIENT = "timing.lease_ttl=2"
"""A lease that a busy machine does not end by itself"""
HASTY = "timing.prepare_timeout=1"
"""Seconds until a backup that is stopped is out of the ready set"""
WAYS = ("killed", "stopped")
ONE_MAKE_EACH = some_of(product(MAKES, WAYS), suite=[*zip(MAKES, WAYS, strict=True)])


@contextmanager
def away(cluster: LocalCluster, how: str, *backups: str) -> Iterator[None]:
    """These backups are ``killed``, or are ``stopped`` for this while."""
    with ExitStack() as stack:
        for backup in backups:
            if how == "killed":
                cluster.kill(backup)
            else:
                stack.enter_context(cluster.frozen(backup))
        yield


def begin(client: TxClient, names: tuple[str, str, str]) -> None:
    """A transaction that takes from the first queue and publishes to the others."""
    client.select()
    taken = client.get(names[0])
    assert taken is not None
    for target in names[1:]:
        client.publish(target, "never")
    client.acknowledge(taken.tag)


def rolled_back(client: TxClient, names: tuple[str, str, str]) -> None:
    """Nothing of it is there, its input is back, and a transaction goes through again."""
    for target in names[1:]:
        assert drained(client, target) == []
    found = drained(client, names[0])
    assert [(d.body, d.redelivered) for d in found] == [("input", True), ("untouched", False)]
    client.select()
    client.publish(names[1], "after")
    assert client.commit() == OK
    assert [d.body for d in drained(client, names[1])] == ["after"]


@pytest.mark.parametrize(("client", "how"), ONE_MAKE_EACH, indirect=["client"])
def test_without_its_backups_the_primary_rolls_back(
    start: Start, client: Open, names: tuple[str, str, str], how: str
) -> None:
    settings = (PATIENT, HASTY)  # of three nodes, two must be ready unless an operator says otherwise
    cluster = start(*settings)
    primary = cluster.primary()
    assert primary is not None
    fill(client(cluster.url(primary)), names, ["input", "untouched"])
    victim = client(cluster.url(primary))
    begin(victim, names)
    with away(cluster, how, *cluster.backups()):
        assert victim.commit() == FAILED
        assert "fewer than 2 nodes are ready" in victim.why
    start(*settings)
    rolled_back(client(cluster.url(primary)), names)


@pytest.mark.parametrize(("client", "how"), ONE_MAKE_EACH, indirect=["client"])
def test_a_client_at_a_backup_is_told_the_same(
    start: Start, client: Open, names: tuple[str, str, str], how: str
) -> None:
    settings = ("min_ready=3", PATIENT, HASTY)
    cluster = start(*settings)
    through, other = cluster.backups()
    fill(client(cluster.url(through)), names, ["input", "untouched"])
    victim = client(cluster.url(through))
    begin(victim, names)
    with away(cluster, how, other):
        assert victim.commit() == FAILED
        assert "fewer than 3 nodes are ready" in victim.why
    start(*settings)
    rolled_back(client(cluster.url(through)), names)
