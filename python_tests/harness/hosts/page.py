"""The commands of a page for several hosts, run as they stand there.

A block of shell begins with a comment that says where: ``# on each host``, ``# on db1``, ``# on db2 and db3``.
What installs packages is left out (``LEFT_OUT``); ``scp`` is done by the suite, since these hosts let no one log in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from python_tests.harness.hosts.host import Host

LEFT_OUT = ("apt-get install ", "python3 -m venv ", "/opt/txha/bin/pip install ")
"""How commands begin that are not run: the suite has installed what they install."""
_BLOCK = re.compile(r"^```sh\n# on ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """``where``: the names of hosts; empty for all of them."""

    where: tuple[str, ...]
    script: str


def blocks(page: Path) -> Iterator[Block]:
    """Those of a page that say where they are run, in its order."""
    for where, script in _BLOCK.findall(page.read_text()):
        names = () if where == "each host" else tuple(re.split(r", | and ", where))
        yield Block(names, script)


def run_block(block: Block, hosts: Mapping[str, Host], checkout: Path) -> str:
    """Run it on each of its hosts, from the checkout; what it printed. Raises HostFailed, KeyError for another host."""
    said = []
    for name in block.where or hosts:
        for kind, script in _parts(block.script):
            if kind == "scp":
                _copy(hosts[name], hosts, shlex.split(script))
            else:
                said.append(hosts[name].run(f"cd {shlex.quote(str(checkout))}\n{script}"))
    return "".join(said)


def _parts(script: str) -> Iterator[tuple[str, str]]:
    """What the shell runs at a time, and each ``scp`` between."""
    lines: list[str] = []
    for line in script.splitlines(keepends=True):
        if line.startswith("scp "):
            if lines:
                yield "sh", "".join(lines)
            lines = []
            yield "scp", line
        elif not line.startswith(LEFT_OUT):
            lines.append(line)
    if "".join(lines).strip():
        yield "sh", "".join(lines)


def _copy(host: Host, hosts: Mapping[str, Host], words: Sequence[str]) -> None:
    """``scp -r FROM HOST:TO``, where TO is a new directory."""
    _, _, source, there = words
    name, _, target = there.partition(":")
    packed = host.run(f"tar -C {shlex.quote(source)} -c . | base64")
    hosts[name].run(f"mkdir -p {shlex.quote(target)} && base64 -d | tar -C {shlex.quote(target)} -x", given=packed)
