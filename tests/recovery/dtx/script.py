"""Conversations without a connection: what is asked is compared, what is answered is written out."""

from __future__ import annotations

from typing import Any, TypeVar

from recovery.dtx.conversation import Lost, Pause, Plain, Reconnect, Refused, Steps
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Xid

T = TypeVar("T")
X = Xid(1, b"x", b"b")
FIELDS = dtx.XidFields(*X)
START, END, PREPARE = dtx.Start(FIELDS), dtx.End(FIELDS), dtx.Prepare(FIELDS)
COMMIT, ONE_PHASE, ROLLBACK = dtx.Commit(FIELDS), dtx.Commit(FIELDS, one_phase=True), dtx.Rollback(FIELDS)
ASKED = dtx.Outcome(dtx.BY_XID, FIELDS)
SINCE = 7
OURS = dtx.Outcome(dtx.BY_XID, FIELDS, SINCE)
"""The same question about a branch that began when the broker was so far."""
LOST = Lost("cut off")
OK = XaStatus.OK

Expected = dtx.DtxMethod | Plain
Answer = Exception | BranchOutcome | XaStatus | dtx.DtxMethod | None


def play(steps: Steps[T], *script: tuple[Expected, Answer], connected: bool = True, stale: bool = False) -> T:
    """Carry ``steps`` out: each request must be the next of the script, and gets its answer, or an error.

    Channels can be had anew at once if ``connected``, never otherwise; time does not pass. ``stale``: what the lost
    channel had delivered is delivered again, and that is not told.
    """
    left = list(script)
    answer: Any = None
    try:
        while True:
            request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
            if isinstance(request, Pause):
                answer = None
            elif isinstance(request, Reconnect):
                answer = stale if connected else Lost("no broker there")
            else:
                assert left, f"{request} was not to be asked"
                expected, answer = left.pop(0)
                assert request == expected
                answer = _method(expected, answer)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        assert not left, f"{left} was to be asked"


def _method(request: Expected, answer: Answer) -> Any:
    if isinstance(answer, BranchOutcome):
        return dtx.OutcomeOk(answer)
    if isinstance(answer, XaStatus):
        return dtx.StartOk(answer, SINCE) if isinstance(request, dtx.Start) else dtx.PrepareOk(answer)
    return answer


def refused(code: int, text: str = "") -> Refused:
    """The broker closes the channel."""
    return Refused(code, text)
