"""The result as one HTML page that needs nothing beside it: tables, and plots as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from python_tests.harness.stress.results import Injection, Result
from python_tests.harness.stress.summary import FAULT_HEADINGS, fault_rows, some_of_each, verdict_rows
from recovery.pages import render, svg

matplotlib.use("svg")

EACH = 50
WIDTH = 11.0


def write_page(path: Path, result: Result) -> None:
    """Write the page. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page = render(
        "stress.html",
        holds=not result.broken and not result.not_proven,
        verdict=_verdict(result),
        verdict_rows=verdict_rows(result),
        lists=_lists(result),
        over_time=svg(_over_time(result)),
        fault_headings=FAULT_HEADINGS,
        fault_rows=fault_rows(result),
        take_overs=svg(_take_overs(result)),
        each=_each(result),
    )
    path.write_text(page)


def _verdict(result: Result) -> str:
    seed = "" if result.seed is None else f" Seed {result.seed}."
    if result.broken:
        return f"A promise was broken.{seed}"
    if result.not_proven:
        return f"No promise was seen broken, and the run proves too little.{seed}"
    return f"Every promise held.{seed}"


def _lists(result: Result) -> Iterable[tuple[str, list[str]]]:
    for heading, lines in (("Broken promises", result.broken), ("Not proven", result.not_proven)):
        if lines:
            yield heading, list(some_of_each(lines, EACH))


def _each(result: Result) -> Iterable[Sequence[str]]:
    for each in result.injections:
        next_ok = "never" if each.next_ok is None else f"{each.next_ok:.2f} s"
        cells = [str(each.round), each.done, each.role, f"{each.healed - each.began:.1f} s", str(each.in_flight)]
        yield [*cells, str(each.committing), next_ok, "yes" if each.hit else "no"]


class _Axis:
    """Monotonic seconds -> seconds of load, without the drains between."""

    def __init__(self, result: Result) -> None:
        moments = [second.at for second in result.timeline.seconds]
        self._places = {at: place for place, at in enumerate(moments)}

    def place(self, moment: float) -> float | None:
        """None for a moment at which no load ran."""
        whole = self._places.get(int(moment))
        return None if whole is None else whole + moment % 1


def _over_time(result: Result) -> Figure:
    seconds, axis = result.timeline.seconds, _Axis(result)
    figure = Figure(figsize=(WIDTH, 6.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    places = range(len(seconds))
    upper.step(places, [second.committed for second in seconds], where="post", color="#1f5fa8", linewidth=1)
    upper.set_ylabel("transactions/s")
    upper.set_ylim(bottom=0)
    for name, values, colour in (
        ("p50", [second.p50 for second in seconds], "#1f5fa8"),
        ("p99", [second.p99 for second in seconds], "#c46a00"),
        ("longest", [second.longest for second in seconds], "#b00020"),
    ):
        lower.plot(places, [value * 1000 or None for value in values], label=name, color=colour, linewidth=1)
    lower.set_yscale("log")
    lower.set_ylabel("latency (ms)")
    lower.set_xlabel("seconds of load")
    lower.legend(loc="upper right", ncols=3)
    for plot in (upper, lower):
        _mark(plot, result.injections, axis)
        plot.grid(alpha=0.3)
    return figure


def _mark(plot: Axes, injections: Sequence[Injection], axis: _Axis) -> None:
    """A band for each fault, in a colour for its kind."""
    colours = _colours(injections)
    for each in injections:
        begin, end = axis.place(each.began), axis.place(each.healed)
        if begin is not None:
            plot.axvspan(begin, max(end or begin, begin + 0.2), color=colours[each.kind], alpha=0.25, linewidth=0)
    handles = [matplotlib.patches.Patch(color=colour, alpha=0.4, label=kind) for kind, colour in colours.items()]
    if handles and plot.get_legend() is None:
        plot.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=6, fontsize="small")


def _take_overs(result: Result) -> Figure:
    """A dot for each fault: how long it took until something that was sent after it was answered ok."""
    kinds = list(dict.fromkeys(each.kind for each in result.injections))
    figure = Figure(figsize=(WIDTH, 1.2 + 0.35 * max(1, len(kinds))), layout="constrained")
    plot = figure.subplots()
    for primary, marker, label in ((True, "o", "of the primary"), (False, "x", "of another node, or of all")):
        mine = [e for e in result.injections if (e.role == "primary") == primary and e.next_ok is not None]
        plot.scatter(
            [each.next_ok or 0.0 for each in mine],
            [kinds.index(each.kind) for each in mine],
            marker=marker,
            label=label,
            color="#b00020" if primary else "#1f5fa8",
            alpha=0.7,
        )
    plot.set_yticks(range(len(kinds)), kinds)
    plot.set_ylim(max(1, len(kinds)) - 0.5, -0.5)
    plot.set_xlim(left=0)
    plot.set_xlabel("seconds to the next ok answer")
    plot.grid(alpha=0.3)
    plot.legend(loc="lower right", fontsize="small")
    return figure


def _colours(injections: Sequence[Injection]) -> dict[str, tuple[float, float, float, float]]:
    palette = matplotlib.colormaps["tab20"]
    kinds = dict.fromkeys(each.kind for each in injections)
    # Neighbours in this palette are the dark and the light of one colour: every second one first.
    return {kind: palette((2 * number + number // 10) % 20) for number, kind in enumerate(kinds)}
