"""The page for several hosts, word for word, on three hosts that the test makes."""

from __future__ import annotations

import json
import re
import ssl
import sys
from pathlib import Path

import pika
import pytest

from python_tests.harness.hosts.host import Host, hosts, why_not
from python_tests.harness.hosts.page import Block, blocks, run_block
from tests.python_tests.harness.stress.surroundings import in_own_surroundings

pytestmark = pytest.mark.slice

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "several_hosts.md"
SYSTEMCTL = ROOT / "python_tests" / "harness" / "hosts" / "systemctl.py"
NAMES = ("db1", "db2", "db3")
"""What the page calls each host: the fourth is told apart"""
ADDRESSES = ("192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14")
GATEWAY = "192.0.2.1"


def prepare(host: Host) -> None:
    """What the packages would have installed, and the stand-in for systemctl."""
    host.run(f"rm -rf /opt/txha && mkdir -p /opt && ln -s {sys.prefix} /opt/txha")
    for place in (Path(sys.base_prefix), Path(sys.prefix), ROOT):  # users of services run what is there
        host.run(f"chmod o+x {' '.join(str(each) for each in place.parents)}")
    host.run(f"install -m 0755 {SYSTEMCTL} /usr/local/bin/systemctl && rm -rf /var/lib/etcd /etc/default/etcd")


def the_page_s_program(host: Host) -> None:
    """The client of the page, as it stands there, from the host on which the client's certificate is."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    host.write("/root/client.py", program)
    host.run("/opt/txha/bin/python /root/client.py")


def drained(host: Host) -> list[bytes]:
    """What is in the queue of the page's client, taken over EXTERNAL at this host."""
    context = ssl.create_default_context(cadata=host.run("cat /etc/txha/tls/authority.pem"))
    context.check_hostname = True
    parameters = pika.ConnectionParameters(
        host.address,
        5671,
        credentials=pika.PlainCredentials("shop", host.run("cat /root/password").strip()),
        ssl_options=pika.SSLOptions(context, host.address),
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
            found.append(got[2])
        return found


def primary(made: dict[str, Host]) -> str:
    """The host whose node leads."""
    for name, host in made.items():
        if '"state": "active"' in host.tried(f"txha status --json --config /etc/txha/node-{name[-1]}.toml").stdout:
            return name
    raise AssertionError("no node is active")


@pytest.mark.timeout(600)
@in_own_surroundings
def test_each_command_of_the_page() -> None:
    """Each ends well, in the order of the page; a client commits, and another node is primary in the end."""
    assert why_not() is None, why_not()
    every = list(blocks(PAGE))
    shell = re.findall(r"^```sh$", PAGE.read_text(), re.MULTILINE)
    assert len(every) == len(shell) > 10, "each block says where it is run"
    with hosts((*NAMES, "db4"), ADDRESSES, GATEWAY) as listed:
        made = {host.name: host for host in listed}
        for host in listed:
            prepare(host)
        run_block(every[0]._replace(where=("db4",)), made, ROOT)  # it is installed as the others are
        for block in every:
            run_block(block if block.where else block._replace(where=NAMES), made, ROOT)
            if "--ready" in block.script:
                commit_and_look(made, block)
        assert primary(made) == "db2"
        members = json.loads(made["db2"].run("txha member list --json --config /etc/txha/node-2.toml"))["members"]
        assert sorted((each["name"], each["ready"]) for each in members) == [(f"node-{n}", True) for n in (1, 2, 3, 4)]


def commit_and_look(made: dict[str, Host], block: Block) -> None:
    """Each node is ready, by the page's own look; the page's client commits, and that is there."""
    look = block.script[block.script.index("for look in ") :].replace("&& break", "&& exit 0")
    for name in block.where or NAMES:
        made[name].run(look + "exit 1")
    the_page_s_program(made["db1"])
    assert drained(made["db1"]) == [b"42"]
