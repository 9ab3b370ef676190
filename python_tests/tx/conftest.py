"""Clusters whose nodes may be killed, and clients of both makes for them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from python_tests.processes import LocalCluster
from python_tests.tx.clients import MAKES, TxClient
from python_tests.waiting import wait_until

Start = Callable[..., LocalCluster]
Open = Callable[[str], TxClient]


@pytest.fixture(scope="module")
def start(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a cluster of this module's own, with ``settings`` as ``--set`` takes them, or returns the running one."""
    running: dict[tuple[str, ...], LocalCluster] = {}

    def start(*settings: str) -> LocalCluster:
        if settings not in running:
            options = [word for setting in settings for word in ("--set", setting)]
            directory = tmp_path_factory.mktemp("killed") / "cluster"
            running[settings] = LocalCluster(directory, 3, *options).start()
        cluster = running[settings]
        for index in range(cluster.count):
            name = f"node-{index + 1}"
            if not cluster.runs(name):
                cluster.start_node(name, settings=settings)
        wait_until(cluster.all_ready, 30, "everyone ready", every=0.1)
        return cluster

    yield start
    for cluster in running.values():
        cluster.stop()


@pytest.fixture(params=MAKES)
def client(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens clients of one make at a url, and closes them in the end."""
    opened: list[TxClient] = []

    def client(url: str) -> TxClient:
        opened.append(MAKES[request.param](url))
        return opened[-1]

    yield client
    for each in opened:
        each.close()


@pytest.fixture
def names() -> tuple[str, str, str]:
    """Names for three queues of this test's own."""
    tag = uuid.uuid4().hex[:8]
    return f"source-{tag}", f"left-{tag}", f"right-{tag}"
