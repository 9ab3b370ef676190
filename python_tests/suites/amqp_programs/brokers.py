"""The brokers of a run, started for it on loopback and ended with it; or those that are there already."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.servers import chosen
from python_tests.suites.amqp_programs.address import Address, address
from python_tests.suites.amqp_programs.campaign import Brokers

INSTALLED = "installed"
"""Stands for the RabbitMQ of this machine."""

ONE_SCHEDULER = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
"""Its processes take turns, so that what AMQP leaves open comes out alike each time; and it does not wait busily."""


LEASE_SECONDS = 30
"""Of txha: on a busy machine it would lose a shorter one now and then, and end every connection."""


@contextmanager
def brokers(rabbitmqs: Sequence[str], txha: str | None, jobs: int) -> Iterator[list[Brokers]]:
    """What each job plays against. RuntimeError if one does not start, ValueError for a wrong URL.

    A txha has one virtual host, so each job has a txha of its own; the jobs share each RabbitMQ.
    """
    if txha is not None and jobs > 1:
        raise ValueError("a txha that runs already serves one job; say --jobs 1")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amqp-programs-")))
        found = [[address(each)] * jobs for each in rabbitmqs if each != INSTALLED]
        found = [[each.of_job(job) if jobs > 1 else each for job, each in enumerate(one, 1)] for one in found]
        if INSTALLED in rabbitmqs:
            found.insert(0, _rabbitmq(stack, directory, jobs))
        mine = [address(txha) if txha else _txha(stack, directory / f"txha-{job}") for job in range(jobs)]
        yield [([each[job] for each in found], mine[job]) for job in range(jobs)]


@contextmanager
def rabbitmq(url: str) -> Iterator[Address]:
    """RabbitMQ alone."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amqp-programs-")))
        yield _rabbitmq(stack, directory, 1)[0] if url == INSTALLED else address(url)


def _rabbitmq(stack: ExitStack, directory: Path, jobs: int) -> list[Address]:
    peer = chosen.rabbitmq(directory / "rabbitmq", 1, {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ONE_SCHEDULER})
    stack.callback(peer.stop)
    peer.start()
    found = [Address(peer.ports[0]).of_job(job) for job in range(1, jobs + 1)]
    peer.add_virtual_hosts([each.vhost for each in found])
    return found


def _txha(stack: ExitStack, directory: Path) -> Address:
    # What RabbitMQ checks is compared, also of arguments that txha would refuse otherwise.
    settings = (f"timing.lease_ttl={LEASE_SECONDS}", "unsupported=warn")
    cluster = LocalCluster(directory, 1, *(word for each in settings for word in ("--set", each)))
    stack.callback(cluster.stop)  # also of one that is starting still
    return Address(cluster.start().ports[0])
