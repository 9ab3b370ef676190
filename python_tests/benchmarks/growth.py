"""``make bench-growth``: throughput and memory as load and data grow, one curve for each dimension.

    python -m python_tests.benchmarks.growth [--quick] [--only depth --only queues] [--deep] [--out docs/benchmarks]

Each dimension is written as soon as it has been measured, beside those of earlier runs. A run in which a message was
lost or doubled, or in which a node left the ready set, gives no figure but the reason.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from python_tests.benchmarks.compare import machine
from python_tests.benchmarks.curves import write_curves
from python_tests.benchmarks.dimensions import DIMENSIONS, Dimension, Pace, Plot, Point
from python_tests.harness.cluster import end_on_sigterm

RESULTS = "growth.json"
PAGE = "growth.md"
DEEP = 10_000_000
HEADINGS = {
    "commits": "transactions/s",
    "messages": "messages/s",
    "mib": "MiB/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "anonymous_mib": "anonymous MiB",
}
INTRODUCTION = """# How throughput and memory change as load and data grow

This page shows one curve for each thing that can grow: queues, messages, nodes, connections. It is
made by `make bench-growth`. Three nodes and the load run on one machine; transactions of 10 durable
messages of 256 bytes over 4 queues come from 8 connections, except for what grows. After every run
each queue must hold, on every node, as many messages as were acknowledged for it, with equal
digests, and no node may have left the ready set. Otherwise the page gives no figure but the reason.
*Anonymous* is the memory of the node that has most, without mapped files.
"""


def measure(name: str, dimension: Dimension, pace: Pace, quick: bool) -> list[Point]:
    """Every point of one dimension, told as it comes."""
    found = []
    for point in dimension.measure(pace, dimension.quick if quick else dimension.points):
        told = "  ".join(f"{HEADINGS[key]} {value:,.1f}" for key, value in point.figures.items())
        print(f"{name:12} {point.at:>12,.0f}  {point.line:28} {told or 'no figure: ' + point.refused}", flush=True)
        found.append(point)
    return found


def write_results(out: Path, name: str, entry: dict[str, Any]) -> None:
    """Put one dimension beside those that are there. Raises OSError."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / RESULTS
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = entry
    path.write_text(json.dumps({each: known[each] for each in DIMENSIONS if each in known}, indent=1) + "\n")


def write_page(out: Path) -> None:
    """The page and the plots, of everything that has been measured so far. Raises OSError."""
    parts = [INTRODUCTION]
    for name, entry in json.loads((out / RESULTS).read_text()).items():
        dimension, points = DIMENSIONS[name], [Point(**point) for point in entry["points"]]
        parts.append(f"## {dimension.title}\n")
        parts.append(f"{entry['machine']}. {entry['seconds']:g} seconds for each point.\n")
        for plot in dimension.plots:
            if _draw(out, dimension, plot, points):
                parts.append(f"![{plot.label} over {dimension.label}]({plot.name}.svg)\n")
            if plot.flat:
                parts.append(f"{plot.flat}\n")
        parts.append("\n".join(_table(dimension, points)) + "\n")
    (out / PAGE).write_text("\n".join(parts))


def _draw(out: Path, dimension: Dimension, plot: Plot, points: list[Point]) -> bool:
    """The plot, if there is anything to draw."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        if not point.refused:
            lines.setdefault(point.line, []).append((point.at, point.figures[plot.figure]))
    if lines:
        path = out / f"{plot.name}.svg"
        write_curves(path, dimension.title, dimension.label, plot.label, lines, dimension.log_x, plot.log_y)
    return bool(lines)


def _table(dimension: Dimension, points: list[Point]) -> list[str]:
    keys = [key for key in HEADINGS if any(key in point.figures for point in points)]
    rows = [f"| {dimension.label} | | {' | '.join(HEADINGS[key] for key in keys)} |", "|---" * (len(keys) + 2) + "|"]
    for point in points:
        cells = [f"{point.figures[key]:,.1f}" if key in point.figures else "" for key in keys]
        note = f"{point.line}: no figure: {point.refused}" if point.refused else point.line
        rows.append(f"| {point.at:,.0f} | {note} | {' | '.join(cells)} |")
    return rows


def main() -> int:
    """Measure and write; 1 if a point has no figure."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description="Measure throughput and memory as load and data grow.")
    parser.add_argument("--only", action="append", choices=list(DIMENSIONS), help="this dimension; may be repeated")
    parser.add_argument("--quick", action="store_true", help="few points, short runs; about three minutes")
    parser.add_argument("--deep", action="store_true", help=f"depth up to {DEEP:,}: ten minutes and 30 GB more")
    parser.add_argument("--seconds", type=float, help="length of one measurement")
    parser.add_argument("--out", type=Path, help="where results go; docs/benchmarks, or build/benchmarks if quick")
    options = parser.parse_args()
    out: Path = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    seconds = options.seconds or (1.5 if options.quick else 8.0)
    refused = False
    for name in options.only or DIMENSIONS:
        dimension = DIMENSIONS[name]
        if options.deep and name == "depth":
            dimension = replace(dimension, points=(*dimension.points, DEEP), quick=(*dimension.quick, DEEP))
        with tempfile.TemporaryDirectory(prefix="txha-growth-") as place:
            points = measure(name, dimension, Pace(seconds, Path(place)), options.quick)
        entry = {"machine": machine(), "seconds": seconds, "points": [asdict(point) for point in points]}
        write_results(out, name, entry)
        write_page(out)
        refused = refused or any(point.refused for point in points)
    print(f"written to {out / PAGE}")
    return int(refused)


if __name__ == "__main__":
    raise SystemExit(main())
