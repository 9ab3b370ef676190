"""Plots as SVG files, the same for the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "txha"
COLOURS = ("#1b7f5c", "#b5553c", "#c98a2b", "#7a5ea8")
SIZE = (7.5, 3.6)

Points = Sequence[tuple[float, float]]


def write_curves(
    path: Path, title: str, x: str, y: str, lines: Mapping[str, Points], log_x: bool = False, log_y: bool = False
) -> None:
    """A line for each name. A logarithmic x axis has room for 0. Raises OSError."""
    figure, plot = _plot(title, x, y)
    for colour, (name, points) in zip(COLOURS * len(lines), lines.items(), strict=False):
        plot.plot([at for at, _ in points], [value for _, value in points], "o-", color=colour, label=name)
        for at, value in points:
            plot.annotate(_short(value), (at, value), textcoords="offset points", xytext=(0, 6), ha="center", size=7)
    if log_x:
        lowest = min((at for points in lines.values() for at, _ in points if at), default=1)
        if any(not at for points in lines.values() for at, _ in points):
            plot.set_xscale("symlog", linthresh=lowest)
        else:
            plot.set_xscale("log")
    ticks = sorted({at for points in lines.values() for at, _ in points})
    plot.set_xticks(ticks, [f"{at:,.0f}" for at in ticks])
    plot.xaxis.set_minor_locator(NullLocator())
    if log_y:
        plot.set_yscale("log")
    else:
        plot.set_ylim(0, 1.15 * max(value for points in lines.values() for _, value in points))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    if len(lines) > 1:
        plot.legend(fontsize="small")
    _save(figure, path)


def write_histogram(path: Path, title: str, x: str, values: Sequence[float], width: float) -> None:
    """How often values fall into each interval of this width. Raises OSError."""
    figure, plot = _plot(title, x, "how often")
    first, last = int(min(values) / width), int(max(values) / width) + 1
    plot.hist(values, bins=[width * number for number in range(first, last + 1)], color=COLOURS[0], edgecolor="white")
    plot.yaxis.get_major_locator().set_params(integer=True)
    _save(figure, path)


def _plot(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.subplots()
    plot.set_title(title, loc="left", fontsize="medium")
    plot.set_xlabel(x)
    plot.set_ylabel(y)
    plot.grid(alpha=0.3)
    return figure, plot


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
