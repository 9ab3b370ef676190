"""The page of an audit: nothing in it is markup but its own, and times at which nothing happened are seen as such."""

from __future__ import annotations

import html
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from recovery.pages import svg
from recovery.pipeline.audit import page
from recovery.pipeline.audit.course import Course, Flow, Interval, TakeOver
from recovery.pipeline.audit.findings import Finding
from recovery.pipeline.audit.report import AuditReport, Doubt, NodeView, Operated, QueueView
from txobserver.printable import printable

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


HOSTILE = "<script>alert('x')</script>"


def test_names_are_no_markup(tmp_path: Path) -> None:
    """A queue may be called anything, and so may a branch and what a client says of a message."""
    same = {"time": BEGAN, "generation": 2, "position": 7, "kind": "decide", "transaction": 1, "commit": True}
    row = {**same, **dict.fromkeys(("reason", "replication_id", "detail", "xid")), "node": "a", "queue": HOSTILE}
    finding = Finding("two-decisions", "P6", 1, None, ["a"], 1, HOSTILE, None, 7, None, HOSTILE, HOSTILE, [row])
    report = AuditReport(
        [NodeView(HOSTILE, 2, 1, 9, 9, 0, 0, 0.5)],
        {"committed": 1234},
        {"two-decisions": 1},
        [finding],
        [Doubt(1, HOSTILE, 2, 3, BEGAN, None)],
        [Operated(1, "branch", True, 3, BEGAN, HOSTILE)],
        [QueueView(HOSTILE, 1, 1, {HOSTILE: 2})],
        [HOSTILE],
        Course(3, BEGAN, BEGAN, [Interval(BEGAN, 3, 0, 5.0, 7.0, 9.0)], [Flow(HOSTILE, BEGAN, 4, 0)]),
    )
    page.write_page(tmp_path / "page.html", report)
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text and text.count("&lt;script&gt;alert(") >= 9
    assert "<td>1,234</td>" in text and "<td>23:59:57</td>" in text and "<td></td>" in text
    assert "Broken: P6" in text and "P6 two-decisions: 1" in text and text.count("<svg") == 3


@pytest.mark.parametrize("name", [r"$\frac{$", "$x$", r"\$a$", "a_b^c", "--><b>", "\x1b[31m\n\u202e\ufdd8\ufde5"])
def test_any_name_is_drawn_as_it_is(name: str, tmp_path: Path) -> None:
    """What stands between two dollars is no formula, and one that cannot be read ends nothing."""
    take_over = TakeOver(3, 7, BEGAN, name, 1.0)
    flows = [Flow(name, BEGAN, 4, 0)]
    course = Course(3, BEGAN, BEGAN, [Interval(BEGAN, 3, 0, 5.0, 7.0, 9.0)], flows, [take_over])
    flow, overs = page._flow(course), page._take_overs(course)
    assert flow is not None and overs is not None
    for figure in (flow, overs):
        assert svg(figure).startswith("<svg")
    title = flow.axes[0].get_title(loc="left")
    assert flow.axes[0].title._preprocess_math(title) == (printable(name), False)  # type: ignore[attr-defined]
    report = AuditReport(queues=[QueueView(name, 1, 1, {})], course=course)
    page.write_page(tmp_path / "page.html", report)
    text = (tmp_path / "page.html").read_text()
    assert html.escape(printable(name)) in text and "\x1b" not in text and "\u202e" not in text


def test_the_page_of_an_audit_that_found_nothing(tmp_path: Path) -> None:
    page.write_page(tmp_path / "page.html", AuditReport())
    text = (tmp_path / "page.html").read_text()
    assert "No promise was seen broken." in text and "Branches in doubt" not in text and " UTC." not in text
