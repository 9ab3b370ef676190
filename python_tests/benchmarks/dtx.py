"""``make bench-dtx``: branches that are prepared and committed, beside plain transactions, in one run.

    python -m python_tests.benchmarks.dtx [--seconds 5] [--rounds 3] [--quick] [--out docs/benchmarks]

The same messages, from the same number of connections, each of which does one transaction after the other: with class
tx, with class dtx in one phase, and in two, as a coordinator does it: ``prepare``, its answer, ``commit``, its answer.
A round in which a message was lost or doubled, or in which a node left the ready set, gives no figure.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

from pamqp import commands

from python_tests.benchmarks.compare import machine
from python_tests.benchmarks.load import TX, Loader, LoadError, Shape, marshalled
from python_tests.benchmarks.subject import Refused, Run, Subject, pause
from python_tests.harness.cluster import end_on_sigterm
from txobserver import dtx_wire as dtx

CONNECTIONS = (1, 8, 32)
QUEUES = 4
PAGE, RESULTS = "dtx.md", "dtx.json"
DTX = "dtx"
FORMAT_ID = 1
CHANNEL = 1

dtx.register()


class OnePhase(Loader):
    """Starts a branch, publishes a batch, ends it, commits it in one phase; then the next."""

    branches = 0
    """Of all loaders: each branch has a name of its own."""
    _xid = dtx.NO_XID

    def _next(self) -> None:
        OnePhase.branches += 1
        self._xid = dtx.XidFields(FORMAT_ID, b"bench-%d" % OnePhase.branches, b"broker")
        self._write(marshalled(dtx.Start(self._xid), CHANNEL))
        super()._next()
        self._write(marshalled(dtx.End(self._xid), CHANNEL) + self._request())

    def _request(self) -> bytes:
        return marshalled(dtx.Commit(self._xid, one_phase=True), CHANNEL)

    def _shake_hands(self, method: object) -> None:
        if isinstance(method, commands.Channel.OpenOk):
            self._write(marshalled(dtx.Select(), CHANNEL))
        elif isinstance(method, dtx.SelectOk):
            self.ready.set_result(None)
        elif isinstance(method, dtx.StartOk | dtx.EndOk | dtx.PrepareOk | dtx.CommitOk):
            self._answer(method)
        else:
            super()._shake_hands(method)

    def _answer(self, method: dtx.StartOk | dtx.EndOk | dtx.PrepareOk | dtx.CommitOk) -> None:
        if method.status:
            self.connection_lost(LoadError(f"{method.name} says {method.status}"))
        elif isinstance(method, dtx.CommitOk):
            self._answered()


class TwoPhases(OnePhase):
    """The same with ``prepare``, and ``commit`` when that is answered."""

    def _request(self) -> bytes:
        return marshalled(dtx.Prepare(self._xid), CHANNEL)

    def _answer(self, method: dtx.StartOk | dtx.EndOk | dtx.PrepareOk | dtx.CommitOk) -> None:
        if isinstance(method, dtx.PrepareOk) and not method.status:
            self._write(marshalled(dtx.Commit(self._xid), CHANNEL))
        super()._answer(method)


WAYS: dict[str, tuple[str, type[Loader]]] = {
    "tx": (TX, Loader),
    "dtx, one phase": (DTX, OnePhase),
    "dtx, prepare and commit": (DTX, TwoPhases),
}


def measure(seconds: float, rounds: int, connections: tuple[int, ...], root: Path) -> dict[str, dict[int, Run]]:
    """Medians of each way at each number of connections. Raises Refused."""
    found: dict[tuple[str, int], list[Run]] = defaultdict(list)
    queues = [f"q{number}" for number in range(QUEUES)]
    with Subject(root / "cluster") as subject:
        subject.declare(queues)
        for number in range(rounds):
            for count in connections:
                for way, (mode, kind) in WAYS.items():
                    run = subject.measure(count, Shape(mode, queues=queues), seconds, kind)
                    found[way, count].append(run)
                    told = f"{run.commits:7.0f} /s  p50 {run.p50_ms:6.1f} ms  p99 {run.p99_ms:6.1f} ms"
                    print(f"round {number + 1}  {count:2} connections  {way:24} {told}", flush=True)
                    pause()
    return {way: {count: median(found[way, count]) for count in connections} for way in WAYS}


def median(runs: list[Run]) -> Run:
    """Field by field."""
    fields = [asdict(run) for run in runs]
    return Run(**{name: statistics.median(each[name] for each in fields) for name in fields[0]})


def page(found: dict[str, dict[int, Run]], seconds: float, rounds: int) -> str:
    """The page."""
    lines = [
        "# Distributed transactions beside plain ones",
        "",
        "This page compares branches of distributed transactions with plain transactions. It is made by",
        "`make bench-dtx`: three nodes and the load on one machine, durable messages of 256 bytes, 10 in each",
        f"transaction, over {QUEUES} queues. Each connection does one transaction after the other. Medians of",
        f"{rounds} rounds of {seconds:g} s, in turn. A round in which a message was lost or doubled, or in which a",
        "node left the ready set, gives no figure.",
        "",
        f"Machine: {machine()}.",
        "",
        "| connections | | transactions/s | p50 ms | p99 ms | of plain tx |",
        "|---|---|---|---|---|---|",
    ]
    for count in next(iter(found.values())):
        base = found["tx"][count].commits
        for way, runs in found.items():
            run = runs[count]
            ratio = f"{run.commits / base:.2f}"
            lines.append(f"| {count} | {way} | {run.commits:,.0f} | {run.p50_ms:.1f} | {run.p99_ms:.1f} | {ratio} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Measure, write, and print where; 1 if there is no figure."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description="Measure branches beside plain transactions.")
    parser.add_argument("--seconds", type=float, help="length of one measurement")
    parser.add_argument("--rounds", type=int, help="how often each is measured; medians are reported")
    parser.add_argument("--quick", action="store_true", help="one short round; writes to build/benchmarks")
    parser.add_argument("--out", type=Path, help="where results go; docs/benchmarks, or build/benchmarks if quick")
    options = parser.parse_args()
    seconds = options.seconds or (1.0 if options.quick else 5.0)
    rounds = options.rounds or (1 if options.quick else 3)
    out: Path = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    with tempfile.TemporaryDirectory(prefix="txha-bench-dtx-") as root:
        try:
            found = measure(seconds, rounds, CONNECTIONS, Path(root))
        except (Refused, RuntimeError) as error:
            print(f"no figures: {error}", file=sys.stderr)
            return 1
    out.mkdir(parents=True, exist_ok=True)
    figures = {way: {count: asdict(run) for count, run in runs.items()} for way, runs in found.items()}
    (out / RESULTS).write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n")
    (out / PAGE).write_text(page(found, seconds, rounds))
    print(f"written to {out / PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
