"""What the plots of the page show: times at which nothing happened are seen as such."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np

from recovery.pipeline.audit import page
from recovery.pipeline.audit.course import Course, Flow, Interval
from recovery.pipeline.audit.findings import Finding

BEGAN = datetime(2026, 1, 31, 23, 59, 57, tzinfo=UTC)


def test_what_all_logs_hold_alike_is_shown_once() -> None:
    rows = [
        {"node": node, "time": BEGAN, "xid": xid, "position": 7, "kind": "decide", "commit": commit}
        for node, xid, commit in (("a", None, True), ("b", "1:g:", True), ("c", "1:g:", False))
    ]
    finding = Finding("two-decisions", "P6", 1, *[None] * 9, rows)  # type: ignore[arg-type]
    assert [(row["node"], row["commit"]) for row in finding.events()] == [("a, b", True), ("c", False)]


def test_a_pause_is_drawn_as_one() -> None:
    """Between two decisions six seconds apart."""
    times = [BEGAN, BEGAN + timedelta(seconds=6)]
    intervals = [Interval(at, 3, 0, 5.0, 7.0, 9.0) for at in times]
    flows = [Flow("q", at, 4, 0) for at in times]
    course = Course(3, BEGAN, times[-1] + timedelta(seconds=1), intervals, flows)
    assert course.times() == [BEGAN + timedelta(seconds=each) for each in (0, 3, 6)]
    latency, flow = page._latency(course), page._flow(course)
    assert latency is not None and flow is not None
    for figure, expected in ((latency, [5.0, math.nan, 5.0]), (flow, [4 / 3, 0.0, 4 / 3])):
        np.testing.assert_equal(np.asarray(figure.axes[0].lines[0].get_ydata()), np.array(expected))
    assert latency.axes[0].get_xlim() == flow.axes[0].get_xlim()
