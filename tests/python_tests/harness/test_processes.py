"""Ports of clusters that tests start: free, neighbours, never of outgoing connections; and what is started ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from broker_plugin.cli.layout import LOWEST_PORT, ephemeral_range, free_ports
from python_tests.harness import cluster as processes
from python_tests.harness.cluster import free_base_port

STARTS_SOMETHING = """
from time import sleep
from python_tests.harness.cluster import end_on_sigterm
end_on_sigterm()
try:
    print("started", flush=True)
    sleep(60)
finally:
    print("ended", flush=True)
"""


def test_base_ports_lie_below_those_of_outgoing_connections() -> None:
    for _ in range(50):
        assert LOWEST_PORT <= free_base_port(9) <= ephemeral_range()[0] - 9


def test_no_port_of_a_cluster_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_ports(1, set())[0]))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(processes, "LOWEST_PORT", taken - 2)
        monkeypatch.setattr(processes, "ephemeral_range", lambda: (taken + 1, 65535))
        with pytest.raises(RuntimeError, match="no 3 free loopback ports"):
            free_base_port(3)


def test_sigterm_lets_a_process_end_what_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_SOMETHING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[0] == "ended\n"
        assert process.returncode == 128 + signal.SIGTERM
