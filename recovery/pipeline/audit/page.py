"""The report of an audit as one HTML page that needs nothing beside it: tables, and plots as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from recovery.pages import in_plot, render, svg
from recovery.pipeline.audit.course import Course
from recovery.pipeline.audit.findings import SHOWN
from recovery.pipeline.audit.names import BREACHES
from recovery.pipeline.audit.report import AuditReport

matplotlib.use("svg")

WIDTH = 11.0
GOOD, BAD, CALM, WARM = "#17692c", "#b00020", "#1f5fa8", "#c46a00"


def write_page(path: Path, report: AuditReport) -> None:
    """Write the page. Raises OSError."""
    values = {"report": report, "course": report.course, "evidence": SHOWN}
    path.write_text(render("audit.html", **values, **_broken(report), **_tables(report), plots=_plots(report.course)))


def _broken(report: AuditReport) -> dict[str, object]:
    breaches = [
        {
            "name": name,
            "count": count,
            "promise": BREACHES[name].promise,
            "meaning": BREACHES[name].meaning,
            "findings": [finding for finding in report.findings if finding.name == name],
        }
        for name, count in report.found.items()
    ]
    return {"promises": sorted({BREACHES[name].promise for name in report.found}), "breaches": breaches}


def _tables(report: AuditReport) -> dict[str, object]:
    return {
        "nodes": [(v.name, v.generation, v.first, v.last, v.lag_events, v.lag_seconds, v.tail) for v in report.nodes],
        "totals": [(name.replace("_", " "), f"{count:,}") for name, count in report.totals.items()],
        "in_doubt": [(d.xid, d.since, d.events, d.position, d.word) for d in report.in_doubt],
        "operated": [
            (o.xid, o.at, "commit" if o.committed else "rollback", o.position, o.against) for o in report.operated
        ],
        "queues": [(q.queue, f"{q.put:,}", f"{q.taken:,}", q.apart or None) for q in report.queues],
    }


def _plots(course: Course) -> Iterable[dict[str, object]]:
    for heading, figure in (
        ("Outcomes over time", _outcomes(course)),
        ("From prepare to commit", _latency(course)),
        ("Take-overs", _take_overs(course)),
        ("Flow through queues", _flow(course)),
    ):
        if figure is not None:
            yield {"heading": heading, "svg": svg(figure)}


def _outcomes(course: Course) -> Figure | None:
    """Decisions a second; lines are take-overs."""
    if not course.intervals:
        return None
    figure, plot = _figure(2.8)
    times, width = [each.at for each in course.intervals], timedelta(seconds=course.seconds)
    committed = [each.committed / course.seconds for each in course.intervals]
    rolled_back = [each.rolled_back / course.seconds for each in course.intervals]
    plot.bar(times, committed, width, align="edge", color=CALM, label="committed")  # type: ignore[arg-type]
    plot.bar(times, rolled_back, width, committed, align="edge", color=WARM, label="rolled back")  # type: ignore[arg-type]
    plot.set_ylabel("transactions/s")
    _mark(plot, course)
    return figure


def _latency(course: Course) -> Figure | None:
    """Milliseconds, by the clocks of primaries; zero is drawn as one."""
    known = {each.at: each for each in course.intervals if each.longest is not None}
    if not known:
        return None
    figure, plot = _figure(2.8)
    times = course.times()
    for label, colour, name in (("half of them", CALM, "p50"), ("99 of 100", WARM, "p99"), ("longest", BAD, "longest")):
        values = [max(getattr(known[at], name) or 0.0, 1.0) if at in known else math.nan for at in times]
        plot.plot(times, values, ".-", color=colour, label=label)  # type: ignore[arg-type]
    plot.set_yscale("log")
    plot.set_ylabel("ms")
    _mark(plot, course)
    return figure


def _take_overs(course: Course) -> Figure | None:
    """How long nothing was committed or published around each."""
    known = [each for each in course.take_overs if each.pause is not None]
    if not known:
        return None
    figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(known)), layout="constrained")
    plot = figure.subplots()
    names = [f"{each.generation}: {in_plot(each.primary)}, {each.at:%H:%M:%S}" for each in known]
    plot.barh(names, [each.pause or 0.0 for each in known], color=BAD)
    plot.invert_yaxis()
    plot.set_xlabel("seconds without a commit or a publish")
    plot.grid(alpha=0.3)
    return figure


def _flow(course: Course) -> Figure | None:
    """Messages a second into and out of each of the busiest queues."""
    queues = list(dict.fromkeys(each.queue for each in course.flows))
    if not queues:
        return None
    figure = Figure(figsize=(WIDTH, 1.4 * len(queues) + 0.4), layout="constrained")
    plots = figure.subplots(len(queues), 1, sharex=True, squeeze=False)[:, 0]
    times = course.times()
    edges = date2num([*times, times[-1] + timedelta(seconds=course.seconds)])  # type: ignore[no-untyped-call]
    for queue, plot in zip(queues, plots, strict=True):
        flows = {each.at: each for each in course.flows if each.queue == queue}
        for label, colour, name in (("in", CALM, "put"), ("out", WARM, "taken")):
            values = [getattr(flows[at], name) / course.seconds if at in flows else 0.0 for at in times]
            plot.stairs(values, edges, baseline=None, color=colour, label=label)
        plot.set_title(in_plot(queue), fontsize="small", loc="left")
        plot.set_ylabel("messages/s")
        plot.set_ylim(bottom=0)
        plot.xaxis_date()
        _dates(plot, course)
    _legend(plots[0])
    return figure


def _figure(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _mark(plot: Axes, course: Course) -> None:
    """A line for each take-over, and what all plots over time have."""
    for each in course.take_overs[1:]:
        plot.axvline(each.at, color=BAD, linewidth=1, linestyle=":")  # type: ignore[arg-type]
    _legend(plot)
    _dates(plot, course)


def _legend(plot: Axes) -> None:
    """Above the plot, where it hides nothing."""
    plot.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, fontsize="small", frameon=False)


def _dates(plot: Axes, course: Course) -> None:
    """The same times in every plot."""
    times = course.times()
    plot.set_xlim(times[0], times[-1] + timedelta(seconds=course.seconds))  # type: ignore[arg-type]
    plot.xaxis.set_major_formatter(ConciseDateFormatter(plot.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    plot.grid(alpha=0.3)
