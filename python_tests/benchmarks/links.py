"""What TLS costs on a link: two nodes' links in one process, in clear and sealed, over TLS and sealed, over TLS.

``python -m python_tests.benchmarks.links`` prints a table in Markdown: processor time of both ends together for each
message, and its ratio to that in clear. The three take turns, so what else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from broker_plugin.cli.certificates import files as certificate_files
from broker_plugin.cli.certificates import issuing
from broker_plugin.guard import Guard
from broker_plugin.node.link_tls import LinkTls
from broker_plugin.node.links import LinkCredentials, Links, PeerAddress
from broker_plugin.tls.contexts import Contexts
from broker_plugin.tls.files import TlsFiles
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import CERTIFIED, LinkSecrets
from ha.messages.stream import Ack, Entries
from recovery.certificate_names import NODE, CertificateName

SECRET = b"of a benchmark, and known to all who read it"
WAYS = ("clear, sealed", "TLS, sealed", "TLS")
SIZES = {0: 20_000, 300: 20_000, 20_000: 2_000, 1 << 20: 60}
"""Bytes of a frame, of which 0 is an acknowledgement, and how many are sent in a turn"""
AHEAD = 64
"""Messages under way, as a primary that waits for acknowledgements has"""


class LinkPair:
    """Node a, which sends, and node b, which counts."""

    def __init__(self, way: str, holders: dict[str, TlsFiles]) -> None:
        self._way = way
        self._holders = holders
        self._linked = asyncio.Event()
        self._came = asyncio.Event()
        self._count = 0

    async def start(self) -> None:
        """Until a is linked with b."""
        held = [socket.create_server(("127.0.0.1", 0)) for _ in "ab"]
        ports = {name: each.getsockname()[1] for name, each in zip("ab", held, strict=True)}
        for each in held:
            each.close()
        self._links = {name: self._made(name, ports) for name in "ab"}
        for name, links in self._links.items():
            await links.start("127.0.0.1", ports[name])
        await asyncio.wait_for(self._linked.wait(), 30)

    async def stop(self) -> None:
        """End it."""
        for links in self._links.values():
            await links.stop()

    async def send(self, message: object, times: int) -> float:
        """Processor seconds for each."""
        self._count = sent = 0
        began = time.process_time()
        while self._count < times:
            while sent < times and sent - self._count < AHEAD:
                self._links["a"].send("b", message)
                sent += 1
            self._came.clear()
            await self._came.wait()
        return (time.process_time() - began) / times

    def _made(self, name: str, ports: dict[str, int]) -> Links:
        (other,) = {"a", "b"} - {name}
        secret = CERTIFIED if self._way == "TLS" else SECRET
        tls = None if self._way == WAYS[0] else LinkTls(Contexts(self._holders[name]), "bench", only=True)
        return Links(
            Guard(_fail, _fail),
            Hello(WIRE_VERSION, "bench", name, "127.0.0.1", 1),
            LinkCredentials(LinkSecrets([secret]), tls=tls),
            [PeerAddress(other, "127.0.0.1", ports[other])],
            lambda peer, features: self._linked.set() if peer == "b" else None,
            lambda peer, message: self._got(),
        )

    def _got(self) -> None:
        self._count += 1
        self._came.set()


def _fail(reason: str) -> None:
    raise RuntimeError(reason)


def holders_in(directory: Path) -> dict[str, TlsFiles]:
    """Certificates of both nodes."""
    now = datetime.now(UTC)
    authority = issuing.make_authority("bench", issuing.new_key(), 9, now)
    certificate_files.write_authority(directory / "ca", authority)
    found = {}
    for name in "ab":
        key, out = issuing.new_key(), directory / name
        made = issuing.issue(authority, CertificateName(NODE, "bench", name), ("localhost",), key, 2, now)
        certificate_files.write_holder(directory / "ca", out, made, key, authority)
        parts = (certificate_files.CERTIFICATE, certificate_files.KEY, certificate_files.AUTHORITY)
        found[name] = TlsFiles(*(out / part for part in parts))
    return found


async def measured(directory: Path, rounds: int, say: Callable[[str], None]) -> dict[int, dict[str, float]]:
    """Median microseconds of processor time, by bytes and way."""
    holders = holders_in(directory)
    took: dict[tuple[int, str], list[float]] = {}
    for number in range(rounds):
        for way in WAYS:
            pair = LinkPair(way, holders)
            await pair.start()
            for size, times in SIZES.items():
                message = Entries(1, 7, 3, bytes(size)) if size else Ack(1, 7, 3)
                took.setdefault((size, way), []).append(await pair.send(message, times) * 1e6)
            await pair.stop()
        say(f"round {number + 1} of {rounds}")
    return {size: {way: statistics.median(took[size, way]) for way in WAYS} for size in SIZES}


def table(found: dict[int, dict[str, float]]) -> str:
    """In Markdown."""
    lines = [f"| message | {' | '.join(WAYS)} |", f"|---|{'---|' * len(WAYS)}"]
    for size, by_way in found.items():
        base = by_way[WAYS[0]]
        cells = [f"{base:,.1f}", *(f"{by_way[way]:,.1f} ({by_way[way] / base:.2f})" for way in WAYS[1:])]
        lines.append(f"| {f'a frame of {size:,} bytes' if size else 'an acknowledgement'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        print(table(uvloop.run(measured(Path(directory), rounds, lambda text: print(text, flush=True)))))


if __name__ == "__main__":
    main()
