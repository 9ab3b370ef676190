"""Writes the page of results.json: tables, ratios and plots (SVG)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WIDTH, BAR, GAP, LEFT = 860, 18, 6, 290
COLOURS = ("#1b7f5c", "#b5553c", "#c98a2b", "#7a5ea8", "#8c8c8c", "#5fb596")


def write_report(directory: Path) -> None:
    """Write README.md and the plots beside results.json."""
    data = json.loads((directory / "results.json").read_text())
    figures: list[dict[str, Any]] = data["figures"]
    (directory / "batches.svg").write_text(bars(figures, "batches", "batches/s (longer is better)"))
    (directory / "p99.svg").write_text(bars(figures, "p99_ms", "p99 of a batch, ms (shorter is better)"))
    lines = [
        "# txha beside RabbitMQ",
        "",
        "This page compares txha with RabbitMQ on one machine, in one run. It is made by `make bench`:",
        "durable messages of 256 bytes, batches of 10 over 4 queues, all nodes and the load on one machine,",
        "each peer in turn, medians over the rounds. A round in which a message was lost or doubled, or in",
        "which a node left the ready set, gives no figure.",
        "",
        f"Machine: {data['machine']}.",
        "Peers that are not at work stand idle beside the one that is.",
        "",
        "![batches per second](batches.svg)",
        "![p99](p99.svg)",
        "",
    ]
    for connections in sorted({figure["connections"] for figure in figures}):
        lines += table([figure for figure in figures if figure["connections"] == connections], connections)
    (directory / "README.md").write_text("\n".join(lines))


def table(figures: list[dict[str, Any]], connections: int) -> list[str]:
    """One number of connections; ratios are to the first row."""
    base = figures[0]["messages"]
    lines = [
        f"## {connections} connection{'s' if connections > 1 else ''}",
        "",
        "| | batches/s | messages/s | p50 ms | p99 ms | CPU s per 1,000 messages | resident MiB | txha is faster by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        ratio = f"{base / figure['messages']:.1f}x" if figure is not figures[0] and figure["messages"] else ""
        lines.append(
            f"| {figure['way']} | {figure['batches']:,.0f} | {figure['messages']:,.0f} | {figure['p50_ms']:.1f} "
            f"| {figure['p99_ms']:.1f} | {figure['cpu_per_1000']:.3f} | {figure['resident_mib']:,.0f} | {ratio} |"
        )
    return [*lines, ""]


def bars(figures: list[dict[str, Any]], key: str, title: str) -> str:
    """A bar a way and number of connections."""
    longest = max(figure[key] for figure in figures) or 1.0
    groups = sorted({figure["connections"] for figure in figures})
    parts: list[str] = []
    y = 40
    for connections in groups:
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{connections} connections</text>')
        y += 10
        for index, figure in enumerate(f for f in figures if f["connections"] == connections):
            width = (WIDTH - LEFT - 90) * figure[key] / longest
            parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{figure["way"]}</text>')
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[index % 6]}"/>')
            parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 13}">{figure[key]:,.1f}</text>')
            y += BAR + GAP
        y += 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" '
        f'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{y}" fill="white"/>\n'
        f'<text x="10" y="20" font-size="15">{title}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )
