"""The result as one HTML page that needs nothing beside it: tables, and plots as SVG."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from python_tests.harness.stress.results import Injection, Result
from python_tests.harness.stress.summary import FAULT_HEADINGS, fault_rows, some_of_each, verdict_rows

matplotlib.use("svg")

EACH = 50
WIDTH = 11.0
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .15rem .8rem; border-bottom: 1px solid #ddd; }
th { text-align: left; } td + td, th + th { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: #17692c; } .bad { color: #b00020; font-weight: 600; } svg { max-width: 100%; height: auto; }
"""


def write_page(path: Path, result: Result) -> None:
    """Write the page. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        f"<h1>txha stress</h1>{_sentence(result)}",
        _table((), (_marked(name, value, bad) for name, value, bad in verdict_rows(result))),
        *_lists(result),
        "<h2>Over time</h2>",
        "<p>Transactions committed in each second, and their latency from commit to commit-ok. Bands are faults. "
        "While the queues are drained and judged, there is no load, and the axis leaves that time out.</p>",
        _svg(_over_time(result)),
        "<h2>Faults</h2>",
        _table(FAULT_HEADINGS, ([html.escape(cell) for cell in row] for row in fault_rows(result))),
        "<p><em>next ok</em>: from the beginning of the fault to the first ok answer to a commit that was sent after "
        "it. <em>pause</em>: the longest time without any ok answer that began while it lasted.</p>",
        _svg(_take_overs(result)),
        "<h2>One by one</h2>",
        _table(("round", "what", "target was", "lasted", "in flight", "committing", "next ok", "hit"), _each(result)),
    ]
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>txha stress</title>'
        f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
    path.write_text(page)


def _sentence(result: Result) -> str:
    seed = "" if result.seed is None else f" Seed {result.seed}."
    if result.broken:
        return f'<p class="bad">A promise was broken.{seed}</p>'
    if result.not_proven:
        return f'<p class="bad">No promise was seen broken, and the run proves too little.{seed}</p>'
    return f'<p class="good">Every promise held.{seed}</p>'


def _lists(result: Result) -> Iterable[str]:
    for heading, lines in (("Broken promises", result.broken), ("Not proven", result.not_proven)):
        if lines:
            items = "".join(f"<li>{html.escape(line)}</li>" for line in some_of_each(lines, EACH))
            yield f'<h2 class="bad">{heading}</h2><ul>{items}</ul>'


def _marked(name: str, value: str, bad: bool) -> Sequence[str]:
    return html.escape(name), f'<span class="bad">{html.escape(value)}</span>' if bad else html.escape(value)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{f'<tr>{head}</tr>' if headings else ''}{body}</table>"


def _each(result: Result) -> Iterable[Sequence[str]]:
    for each in result.injections:
        next_ok = "never" if each.next_ok is None else f"{each.next_ok:.2f} s"
        cells = [str(each.round), each.done, each.role, f"{each.healed - each.began:.1f} s", str(each.in_flight)]
        yield [html.escape(cell) for cell in (*cells, str(each.committing), next_ok, "yes" if each.hit else "no")]


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


def _svg(figure: Figure) -> str:
    """Without the XML head, so that it can stand in a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]
