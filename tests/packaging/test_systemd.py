"""The unit for systemd: it runs a node as the documentation says, and what it forbids a node does not need."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from broker_plugin.cli.cluster.cluster import REFUSED
from python_tests.harness.waiting import wait_until
from recovery.store.store import CLOSE_SECONDS
from tests.packaging.composed import ROOT, TXHA, Composed
from tests.packaging.test_container import connect

pytestmark = pytest.mark.slice

UNIT = ROOT / "packaging" / "txha@.service"
AS_ROOT = {"fchown"}
"""SQLite gives a journal to the owner of its database, where it runs as root, as tests may"""
LARGEST_EXPOSURE = "12"
"""Tenths, of what `systemd-analyze security` of Debian 12 makes of a unit: from 0, safe, to 100. What is left is the
network, which a node is for; each protection that is taken out of the unit makes it more."""


def settings() -> dict[str, list[str]]:
    """Every key of the unit with its values."""
    found: dict[str, list[str]] = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found[key].append(value)
    return found


def expanded(*groups: str) -> set[str]:
    """The system calls of systemd's groups."""
    found: set[str] = set()
    for group in groups:
        said = subprocess.run(
            ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
        ).stdout
        names = re.findall(r"^\s+(@?\w[\w-]*)$", said, re.MULTILINE)
        found |= {name for name in names if name[0] != "@"} | expanded(*(name for name in names if name[0] == "@"))
    return found


def unit_of(command: list[str], directory: Path) -> Composed:
    """One node of its own, founded, as `txha@.service` runs it; the command is that of the unit with paths of here."""
    users = directory / "users.toml"
    users.write_text('app = "right"\n')
    users.chmod(0o600)
    composed = Composed(directory, users)
    (directory / "node-1.toml").write_text(
        f'name = "node-1"\ncluster = "c"\ndir = "{directory}/store"\ncoordination = "{directory}/record.sqlite"\n'
        f"[amqp]\nport = {composed.client_port('node-1')}\n[peer]\nport = {composed.client_port('node-2')}\n"
        "[timing]\nlease_ttl = 20\n"  # a node that is traced is slow
    )
    subprocess.run([*TXHA, "init", "--config", directory / "node-1.toml"], check=True, capture_output=True)
    (start,) = settings()["ExecStart"]
    given = start.replace("%i", "node-1").replace("/etc/txha", str(directory)).split()
    assert given[0].endswith("/bin/txha")
    command += [*TXHA, *given[1:]]
    return composed


def variables(directory: Path) -> dict[str, str]:
    """What the unit puts into the environment, with the credential where systemd puts it."""
    (credential,) = settings()["LoadCredential"]
    name, _, source = credential.partition(":")
    assert Path(source).name == "users.toml"
    shutil.copy(directory / "users.toml", directory / name)
    return dict(each.replace("%d", str(directory)).split("=", 1) for each in settings()["Environment"])


def test_the_unit_runs_a_node_that_uses_no_call_and_no_memory_that_it_forbids(tmp_path: Path) -> None:
    traced = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-o", str(traced)]
    composed = unit_of(command, tmp_path)
    environment = {**composed.environment(), **variables(tmp_path)}
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    port = composed.client_port("node-1")
    try:
        ask = [*TXHA, "status", "--ready", "--config", tmp_path / "node-1.toml"]
        wait_until(lambda: not subprocess.run(ask, capture_output=True, check=False).returncode, 60, "a ready node")
        with connect(port, "app", "right") as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            channel.basic_publish("", "q", b"x" * 5_000_000)
            channel.tx_commit()
    finally:
        (node,) = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        os.kill(node, signal.SIGTERM)
        assert process.wait(60) == 0
        log.close()
    lines = traced.read_text(errors="replace")
    assert not re.findall(r"(?:mmap|mprotect)\(.*PROT_WRITE\|PROT_EXEC.*", lines), "MemoryDenyWriteExecute"
    used = set(re.findall(r"^\d+ +(\w+)\(", lines, re.MULTILINE))
    assert {"fdatasync", "sendto"} & used and len(used) > 30
    assert used <= allowed() | AS_ROOT, used - allowed() - AS_ROOT
    families = set(re.findall(r"socket\((AF_\w+)", lines))
    assert families <= set(settings()["RestrictAddressFamilies"][0].split())


def allowed() -> set[str]:
    """The calls that the unit allows: what it lists, without what it takes out behind."""
    found: set[str] = set()
    for line in settings()["SystemCallFilter"]:
        groups = line.removeprefix("~").split()
        found = found - expanded(*groups) if line[0] == "~" else found | expanded(*groups)
    return found


def test_systemd_understands_the_unit_and_finds_it_little_exposed(tmp_path: Path) -> None:
    copy = tmp_path / "txha@.service"
    copy.write_text(UNIT.read_text().replace("/opt/txha/bin/txha", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={LARGEST_EXPOSURE}", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout[-300:]


def test_the_unit_agrees_with_what_a_node_does() -> None:
    found = {key: values[-1] for key, values in settings().items()}
    assert found["Restart"] == "on-failure" and found["RestartPreventExitStatus"] == str(REFUSED)
    assert int(found["TimeoutStopSec"]) > CLOSE_SECONDS
    assert found["User"] == "txha" and (ROOT / "packaging" / "txha.sysusers.conf").read_text().startswith("u txha ")
    assert int(found["LimitNOFILE"]) >= 20_300, "docs/operations.md, open files"
    assert (found["UMask"], found["StateDirectory"], found["StateDirectoryMode"]) == ("0077", "txha", "0700")
    assert "install -d -o txha -g txha -m 0700 /var/lib/txha" in (ROOT / "docs" / "install.md").read_text()
    assert found["KillMode"] == "mixed", "the child that keeps the coordination file ends with its node, not before it"
    assert int(found["StartLimitBurst"]) * int(found["RestartSec"]) < int(found["StartLimitIntervalSec"])
    assert found["LoadCredential"] == "users:/etc/txha/users.toml"
    assert found["Environment"] == "TXHA_AMQP__USERS_FILE=%d/users"


@pytest.mark.parametrize("name", ["NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute"])
def test_the_unit_forbids(name: str) -> None:
    assert settings()[name] == ["yes"]
