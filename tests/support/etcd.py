"""One etcd for all tests of a run that need but one member that works; each test has a prefix of its own."""

from __future__ import annotations

import atexit
from functools import cache

from python_tests.harness.servers.etcd import EtcdServers


@cache
def one_member() -> EtcdServers:
    """It ends with the process of the tests."""
    server = EtcdServers(1)
    server.__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server
