"""What the plots of the page show: times at which nothing happened are seen as such."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
from matplotlib.patches import StepPatch

from recovery.pipeline.audit import page
from recovery.pipeline.audit.course import Course, Flow, Interval
from recovery.pipeline.audit.findings import Finding

BEGAN = datetime(2026, 1, 31, 23, 59, 57, tzinfo=UTC)


def test_what_all_logs_hold_alike_is_shown_once() -> None:
    same = {"time": BEGAN, "generation": 2, "position": 7, "kind": "decide", "transaction": 1}
    rows = [
        {**same, **dict.fromkeys(("queue", "replication_id", "detail")), "node": node, "xid": xid, "commit": commit}
        for node, xid, commit in (("a", None, True), ("b", "1:g:", True), ("c", "1:g:", False))
    ]
    finding = Finding("two-decisions", "P6", 1, *[None] * 9, rows)  # type: ignore[arg-type]
    assert finding.shown() == [
        (nodes, "2.7", "decide", "0-1", "", "", outcome) for nodes, outcome in (("a, b", "commit"), ("c", "rollback"))
    ]


def test_a_pause_is_drawn_as_one() -> None:
    """Between two decisions six seconds apart."""
    times = [BEGAN, BEGAN + timedelta(seconds=6)]
    intervals = [Interval(at, 3, 0, 5.0, 7.0, 9.0) for at in times]
    flows = [Flow("q", at, 4, 0) for at in times]
    course = Course(3, BEGAN, times[-1] + timedelta(seconds=1), intervals, flows)
    assert course.times() == [BEGAN + timedelta(seconds=each) for each in (0, 3, 6)]
    latency, flow = page._latency(course), page._flow(course)
    assert latency is not None and flow is not None
    np.testing.assert_equal(np.asarray(latency.axes[0].lines[0].get_ydata()), np.array([5.0, math.nan, 5.0]))
    [steps, _] = flow.axes[0].patches
    assert isinstance(steps, StepPatch) and list(steps.get_data().values) == [4 / 3, 0.0, 4 / 3]
    assert latency.axes[0].get_xlim() == flow.axes[0].get_xlim()
