"""``make bench-restart``: how long a restart, a catch-up and a take-over take, and what a joiner costs the others.

    python -m python_tests.benchmarks.restart [--quick] [--only restart --only takeover-etcd …] [--out …]

Each part is written as soon as it has been measured, beside those of earlier runs. What was acknowledged before must be
there afterwards, on every node, or there is no figure but the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from python_tests.benchmarks.compare import machine
from python_tests.benchmarks.curves import write_curves, write_histogram
from python_tests.benchmarks.dimensions import CONNECTIONS, QUEUES, SHAPE
from python_tests.benchmarks.leaders import LEASES, measure
from python_tests.benchmarks.load import LoadError, Result, run_until
from python_tests.benchmarks.subject import Refused, Subject
from python_tests.harness.cluster import end_on_sigterm
from python_tests.harness.takeover import ETCD, SQLITE
from python_tests.harness.waiting import wait_until

RESULTS = "restart.json"
PAGE = "restart.md"
JOIN_SECONDS = 600.0
AWAY = "away"
AWAY_SIZE = 4096
INTRODUCTION = """# How long restart, catch-up and take-over take

This page shows how long a cluster takes to serve again, and what a joiner costs the other nodes. It
is made by `make bench-restart`. Three nodes and the load run on one machine. What was acknowledged
before must be there afterwards on every node, with equal digests. Otherwise the page gives no
figure but the reason.
"""


@dataclass(frozen=True)
class Extent:
    """How much is measured. ``missed_mib``: what is published while a node is away; ``seconds`` of load around it."""

    depths: tuple[int, ...] = (0, 10_000, 100_000, 1_000_000)
    missed_mib: int = 512
    seconds: float = 8.0
    trials: int = 50
    leases: tuple[float, ...] = LEASES
    changes: int = 10
    """Of etcd's leader, for each lease and way"""


QUICK = Extent((0, 50_000), 48, 2.0, 3, (1.0, 4.0), 2)


def restart(extent: Extent, place: Path) -> dict[str, Any]:
    """All nodes are ended, cleanly or by SIGKILL, and started again, with so many messages waiting."""
    found = []
    with Subject(place / "restart") as subject:
        subject.declare(QUEUES)
        for depth in extent.depths:
            for way, end in (("stopped cleanly", subject.cluster.stop), ("SIGKILL of all", subject.kill_all)):
                subject.fill(QUEUES, depth)
                end()
                began = time.monotonic()
                subject.cluster.start()
                taken = time.monotonic() - began
                subject.find_primary()
                subject.check(subject.nodes.departures())
                print(f"restart  {depth:>9,} messages  {way:16} {taken:6.2f} s", flush=True)
                found.append({"way": way, "depth": depth, "seconds": taken})
    return {"points": found}


FOLLOW, COPY = "by its log", "queue by queue"
SHORT_LOG = ("--set", "store.retention_seconds=0", "--set", "store.segment_bytes=1048576")
"""With these the log is gone soon after each checkpoint, and a new store can only be filled by a copy."""


def catchup(extent: Extent, place: Path) -> dict[str, Any]:
    """A backup comes back while commits go on: with its log, or with a new store when the log does not reach back."""
    found = {}
    for way, options in ((FOLLOW, ()), (COPY, SHORT_LOG)):
        with Subject(place / way.replace(" ", "-"), 3, *options) as subject:
            subject.declare([*QUEUES, AWAY])
            found[way] = _come_back(subject, extent, way == COPY)
        told = "  ".join(f"{key} {value:,.1f}" for key, value in found[way].items())
        print(f"catch-up  {way:14}  {told}", flush=True)
    return {"ways": found}


def _come_back(subject: Subject, extent: Extent, new_store: bool) -> dict[str, float]:
    name = subject.cluster.backups()[0]
    missed_from = 0 if new_store else subject.log_bytes()
    subject.cluster.kill(name)
    wait_until(lambda: name not in subject.ready_set(), 30, "the removal of the killed node")
    departures = subject.nodes.departures()
    subject.fill([AWAY], subject.expected[AWAY] + extent.missed_mib * 2**20 // AWAY_SIZE, AWAY_SIZE)
    if new_store:
        for part in ("log", "state"):
            shutil.rmtree(subject.cluster.directory / name / part)
        (subject.cluster.directory / name / "identity.json").unlink()
        wait_until(lambda: not subject.log_is_whole(), JOIN_SECONDS, "the end of the log's beginning", every=0.1)
    before = _steady(subject, extent.seconds)
    with _Load(subject, extent.seconds) as load:
        began = time.monotonic()
        subject.cluster.start_node(name)
        wait_until(lambda: subject.nodes.state(name) in ("catchup", "ready"), JOIN_SECONDS, "the attachment")
        attached = time.monotonic()
        wait_until(lambda: subject.nodes.state(name) == "ready", JOIN_SECONDS, "all nodes ready", every=0.05)
        ready = time.monotonic()
    during = load.rate(attached, ready)
    after = _steady(subject, extent.seconds)
    subject.check(departures)
    if new_store:
        if not subject.copies(name):
            raise Refused("the joiner was to copy the queues, and followed the log")
        copied = AWAY_SIZE * subject.expected[AWAY] + SHAPE.size * sum(subject.expected[queue] for queue in QUEUES)
    else:
        copied = subject.log_bytes() - missed_from
    return {
        "MiB": copied / 2**20,
        "seconds to attach": attached - began,
        "seconds to catch up": ready - attached,
        "MiB/s": copied / 2**20 / max(ready - attached, 1e-3),
        "transactions/s before": before,
        "transactions/s meanwhile": during,
        "transactions/s after": after,
        "cost in percent of before": 100 * (1 - during / before),
        "cost in percent of after": 100 * (1 - during / after),
    }


def _steady(subject: Subject, seconds: float) -> float:
    """Transactions a second without any node coming or going."""
    with _Load(subject, 0) as load:
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
    return load.rate(began, ended)


class _Load(threading.Thread):
    """The usual load until the end of the context, at least for so many seconds. Counts when commits were answered."""

    def __init__(self, subject: Subject, at_least: float) -> None:
        super().__init__()
        self._subject = subject
        self._at_least = at_least
        self._ended = threading.Event()
        self._counts: list[tuple[float, int]] = []
        self._result = Result()
        self._error: Exception | None = None

    def __enter__(self) -> _Load:
        self._began = time.monotonic()
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        while self._error is None and time.monotonic() - self._began < self._at_least:
            time.sleep(0.05)
        self._ended.set()
        self.join()
        if self._error is not None:
            raise Refused(f"the load was cut short: {self._error}")
        self._subject.expected += self._result.messages(SHAPE)

    def run(self) -> None:
        """Load, until told to end."""

        async def count() -> None:
            while not self._ended.is_set():
                self._counts.append((time.monotonic(), len(self._result.latencies)))
                await asyncio.sleep(0.05)

        try:
            asyncio.run(run_until([self._subject.port], CONNECTIONS, SHAPE, count(), self._result))
        except (LoadError, OSError) as error:
            self._error = error

    def rate(self, began: float, ended: float) -> float:
        """Transactions a second between two moments."""
        (first, before), (last, after) = (
            min(self._counts, key=lambda count: abs(count[0] - moment)) for moment in (began, ended)
        )
        if last <= first:
            raise Refused("it was over before anything could be counted")
        return (after - before) / (last - first)


def takeover(extent: Extent, place: Path, coordination: str = SQLITE) -> dict[str, Any]:
    """``txha takeover``: from SIGKILL of the primary to the first confirmed publish."""
    options = ("--trials", str(extent.trials), "--coordination", coordination, "--json")
    command = [sys.executable, "-m", "broker_plugin.cli.main", "takeover", *options]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not answer.stdout.strip():
        raise Refused(f"txha takeover ended with status {answer.returncode}")
    found = dict(json.loads(answer.stdout))
    print(
        f"take-over  {coordination}  p50 {found['p50']:.2f} s  p95 {found['p95']:.2f} s  max {found['max']:.2f} s",
        flush=True,
    )
    return found


def takeover_etcd(extent: Extent, place: Path) -> dict[str, Any]:
    """The same with the record in an etcd of three members."""
    return takeover(extent, place, ETCD)


def leaders(extent: Extent, place: Path) -> dict[str, Any]:
    """Another leader of etcd, with each lease: by SIGKILL of the leader, and by hand."""
    return {"points": [asdict(each) for each in measure(extent.leases, extent.changes)]}


PARTS: dict[str, Callable[[Extent, Path], dict[str, Any]]] = {
    "restart": restart,
    "catchup": catchup,
    "takeover": takeover,
    "takeover-etcd": takeover_etcd,
    "leaders": leaders,
}


def write_page(out: Path) -> None:
    """The page and the plots, of everything that has been measured so far. Raises OSError."""
    parts = [INTRODUCTION]
    for name, entry in json.loads((out / RESULTS).read_text()).items():
        parts += [TITLES[name], f"{entry['machine']}.\n"]
        parts += [f"No figure: {entry['refused']}\n"] if "refused" in entry else SECTIONS[name](out, entry)
    (out / PAGE).write_text("\n".join(parts))


def _restart_section(out: Path, entry: dict[str, Any]) -> list[str]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in entry["points"]:
        lines.setdefault(point["way"], []).append((point["depth"], point["seconds"]))
    write_curves(out / "restart.svg", "Restart of three nodes", "messages waiting", "seconds", lines, log_x=True)
    rows = [f"| {p['depth']:,} | {p['way']} | {p['seconds']:.2f} |" for p in entry["points"]]
    return [
        "The time is from the start of the processes until all three are ready. Each node reads its whole",
        "queue state before it serves, to find damage.\n",
        "![restart](restart.svg)\n",
        "\n".join(["| messages waiting | | seconds |", "|---|---|---|", *rows]) + "\n",
    ]


def _catchup_section(out: Path, entry: dict[str, Any]) -> list[str]:
    ways = entry["ways"]
    keys = list(next(iter(ways.values())))
    rows = [f"| {key} | {' | '.join(f'{ways[way][key]:,.1f}' for way in ways)} |" for key in keys]
    return [
        "A backup was killed, missed that much, and came back while 8 connections committed. It came back",
        "with its log, or with a new store when no log reaches back, so that all queues are copied. *Before*",
        "is with two nodes, *after* with three, all on this machine; the cost of the third node itself is the",
        "difference of these two.\n",
        "\n".join([f"| | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|", *rows]) + "\n",
    ]


def _takeover_section(out: Path, entry: dict[str, Any]) -> list[str]:
    title = f"SIGKILL of the primary, {len(entry['seconds'])} times"
    label = "seconds to the first confirmed publish"
    etcd = entry.get("coordination") == ETCD
    plot = "takeover-etcd.svg" if etcd else "takeover.svg"
    write_histogram(out / plot, title, label, entry["seconds"], 0.1)
    told = ", ".join(f"{key} {entry[key]:.2f} s" for key in ("p50", "p95", "max"))
    found = [f"Time from SIGKILL to the first confirmed publish at a survivor: {told}."]
    if "goal" in entry:
        found += [
            f"The lease is that of default settings, {entry['lease_ttl']:g} s; a p50 of {entry['goal']:g} s at most is",
            "wanted. Most of it is that lease, as long as no other process gives it up for the primary: a backup",
            "stands when it has seen the record unchanged for so long, since a primary that is not dead may go",
            "on until then. Its last renewal was made up to `timing.renew_every` before it was killed. What is",
            "left goes to asking the other nodes, to the change of the record, and to the client.",
        ]
    return ["\n".join(found) + "\n", f"![take-over]({plot})\n"]


def _leaders_section(out: Path, entry: dict[str, Any]) -> list[str]:
    rows = []
    for point in entry["points"]:
        over, times = sum(point["take_overs"]), len(point["take_overs"])
        pauses = sorted(point["pauses"])
        cells = [f"{point['lease_ttl']:g} s", point["way"], f"{over} in {times}"]
        rows.append("| " + " | ".join([*cells, f"{pauses[len(pauses) // 2]:.2f} s", f"{pauses[-1]:.2f} s"]) + " |")
    return [
        "The record is in an etcd of three members with etcd's own settings. Its leader is killed, or",
        "leadership is moved to another member, while a client publishes with confirms. A take-over is a",
        "primary of another generation. The pauses are the longest time without a confirm, in the middle and",
        "at most ([why the default is 4 s](../decisions/etcd.md#how-long-a-lease-is)).\n",
        "\n".join(["| lease | | take-overs | pause, median | longest |", "|---|---|---|---|---|", *rows]) + "\n",
    ]


TITLES = {
    "restart": "## Restart\n",
    "catchup": "## Catch-up of a joiner\n",
    "takeover": "## Take-over\n",
    "takeover-etcd": "## Take-over with etcd\n",
    "leaders": "## Another leader of etcd\n",
}
SECTIONS: dict[str, Callable[[Path, dict[str, Any]], list[str]]] = {
    "restart": _restart_section,
    "catchup": _catchup_section,
    "takeover": _takeover_section,
    "takeover-etcd": _takeover_section,
    "leaders": _leaders_section,
}


def main() -> int:
    """Measure and write; 1 if a part has no figure."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description="Measure how long restart, catch-up and take-over take.")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part; may be repeated")
    parser.add_argument("--quick", action="store_true", help="little of everything; about a minute")
    parser.add_argument("--out", type=Path, help="where results go; docs/benchmarks, or build/benchmarks if quick")
    options = parser.parse_args()
    out: Path = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    refused = False
    for name in options.only or PARTS:
        with tempfile.TemporaryDirectory(prefix="txha-restart-") as place:
            try:
                entry = PARTS[name](QUICK if options.quick else Extent(), Path(place))
            except (Refused, TimeoutError, RuntimeError) as error:
                entry, refused = {"refused": str(error)}, True
                print(f"{name}: no figure: {error}", flush=True)
        path = out / RESULTS
        known = json.loads(path.read_text()) if path.exists() else {}
        known[name] = {"machine": machine(), **entry}
        path.write_text(json.dumps({each: known[each] for each in PARTS if each in known}, indent=1) + "\n")
        write_page(out)
    print(f"written to {out / PAGE}")
    return int(refused)


if __name__ == "__main__":
    raise SystemExit(main())
