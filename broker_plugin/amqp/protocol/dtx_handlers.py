"""What a client may ask of class dtx, method by method (docs/dtx.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker_plugin.amqp.protocol.answering import Answering
from broker_plugin.amqp.protocol.codec import OVERHEAD, encode_method
from broker_plugin.embedded.errors import dtx_error
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields
from txobserver.outcomes import XaStatus
from txobserver.xid import MAX_PART, Global, Xid, checked_xid

Handler = Callable[[Answering, Any], None]

dtx.register()

PAGE_OVERHEAD = 64
"""Bytes of recover-ok and global-ok beside the branches that they list, and more than that."""


def _xid(fields: XidFields) -> Xid:
    try:
        return checked_xid(*fields)
    except ValueError as error:
        raise dtx_error(542, str(error)) from None


def _global(format_id: int, global_id: bytes) -> Global:
    return _xid(XidFields(format_id, global_id, b"")).globally


def _answer(channel: Answering, method: dtx.DtxMethod) -> None:
    channel.answer(encode_method(method, channel.number))


def _status(channel: Answering, kind: Callable[[int], dtx.DtxMethod], status: XaStatus) -> None:
    _answer(channel, kind(status))


def _select(channel: Answering, method: dtx.Select) -> None:
    channel.inner.mode.select_dtx()
    _answer(channel, dtx.SelectOk())


def _start(channel: Answering, method: dtx.Start) -> None:
    status = channel.inner.mode.start_branch(_xid(method.xid), method.join, method.resume)
    _answer(channel, dtx.StartOk(status, channel.broker.content.applied.sequence))


def _end(channel: Answering, method: dtx.End) -> None:
    _answer(channel, dtx.EndOk(channel.inner.mode.end_branch(_xid(method.xid), method.fail, method.suspend)))


def _prepare(channel: Answering, method: dtx.Prepare) -> None:
    channel.wait()
    reply = partial(_status, channel, dtx.PrepareOk)
    channel.broker.operations.branches.prepare(channel.inner, _xid(method.xid), reply)


def _commit(channel: Answering, method: dtx.Commit) -> None:
    channel.wait()
    reply = partial(_status, channel, dtx.CommitOk)
    channel.broker.operations.branches.commit(channel.inner, _xid(method.xid), method.one_phase, reply)


def _rollback(channel: Answering, method: dtx.Rollback) -> None:
    channel.wait()
    reply = partial(_status, channel, dtx.RollbackOk)
    channel.broker.operations.branches.rollback(channel.inner, _xid(method.xid), reply)


def _forget(channel: Answering, method: dtx.Forget) -> None:
    channel.wait()
    reply = partial(_answer, channel, dtx.ForgetOk())
    channel.broker.operations.branches.forget(channel.inner, _xid(method.xid), reply)


def _get_timeout(channel: Answering, method: dtx.GetTimeout) -> None:
    _answer(channel, dtx.GetTimeoutOk(channel.broker.branches.timeout(_xid(method.xid))))


def _set_timeout(channel: Answering, method: dtx.SetTimeout) -> None:
    channel.broker.branches.set_timeout(_xid(method.xid), method.timeout)
    _answer(channel, dtx.SetTimeoutOk())


def _page(channel: Answering, go_on: bool, found: Callable[[], list[bytes]]) -> tuple[bytes, bool]:
    """As many entries of a list as fit in a frame, and whether more are left. ``go_on``: of the list that was begun."""
    if not go_on:
        channel.listing = found()[::-1]
        channel.broker.turn.looked_at(len(channel.listing))
    left, page = channel.listing, bytearray()
    room = (channel.connection.frame_max or 1 << 20) - OVERHEAD - PAGE_OVERHEAD
    while left and len(page) + len(left[-1]) <= room:
        page += left.pop()
    return bytes(page), bool(left)


def _recover(channel: Answering, method: dtx.Recover) -> None:
    branches = channel.broker.branches
    page = _page(channel, method.go_on, lambda: [dtx.pack_xids([XidFields(*xid)]) for xid in branches.recover()])
    _answer(channel, dtx.RecoverOk(*page))


def _decide(channel: Answering, method: dtx.Decide) -> None:
    channel.wait()
    which = _global(method.format_id, method.global_id)
    reply = partial(_status, channel, dtx.DecideOk)
    channel.broker.operations.branches.decide_globally(channel.inner, which, method.commit, reply)


def _global_state(channel: Answering, method: dtx.Global) -> None:
    state = channel.broker.operations.branches.look(_global(method.format_id, method.global_id))
    page = _page(
        channel,
        method.go_on,
        lambda: [dtx.pack_states([(XidFields(*xid), outcome)]) for xid, outcome in state.branches.items()],
    )
    _answer(channel, dtx.GlobalOk(dtx.DECISIONS.get(state.decision, dtx.NOT_DECIDED), *page))


def _forget_global(channel: Answering, method: dtx.ForgetGlobal) -> None:
    channel.wait()
    reply = partial(_answer, channel, dtx.ForgetGlobalOk())
    which = _global(method.format_id, method.global_id)
    channel.broker.operations.branches.forget_globally(channel.inner, which, reply)


def _outcome(channel: Answering, method: dtx.Outcome) -> None:
    """On a channel in any mode: who lost the answer to a plain tx.commit asks, too."""
    if method.kind == dtx.BY_XID:
        outcome = channel.broker.branches.outcome(_xid(method.xid), method.since)
    elif method.kind == dtx.BY_TOKEN:
        outcome = channel.broker.outcome_of_token(_checked(method.xid.global_id), method.since)
    else:
        raise dtx_error(542, f"names of transactions are of kind {dtx.BY_XID} or {dtx.BY_TOKEN}, not {method.kind}")
    _answer(channel, dtx.OutcomeOk(outcome))


def _checked(token: bytes) -> bytes:
    """542 for one that no transaction can have: its outcome would be told as if nothing had been committed."""
    if not 1 <= len(token) <= MAX_PART:
        raise dtx_error(542, f"a token has 1 to {MAX_PART} bytes, not {len(token)}")
    return token


def _token(channel: Answering, method: dtx.Token) -> None:
    channel.inner.mode.name_transaction(method.token)
    _answer(channel, dtx.TokenOk(channel.broker.content.applied.sequence))


def _selected(handler: Handler) -> Handler:
    """503 if dtx was not selected."""

    def checked(channel: Answering, method: Any) -> None:
        channel.inner.mode.check_dtx()
        handler(channel, method)

    return checked


DTX_HANDLERS: dict[int, Handler] = {
    dtx.Select.index: _select,
    dtx.Start.index: _selected(_start),
    dtx.End.index: _selected(_end),
    dtx.Commit.index: _selected(_commit),
    dtx.Forget.index: _selected(_forget),
    dtx.GetTimeout.index: _selected(_get_timeout),
    dtx.Prepare.index: _selected(_prepare),
    dtx.Recover.index: _selected(_recover),
    dtx.Rollback.index: _selected(_rollback),
    dtx.SetTimeout.index: _selected(_set_timeout),
    dtx.Decide.index: _selected(_decide),
    dtx.Global.index: _selected(_global_state),
    dtx.ForgetGlobal.index: _selected(_forget_global),
    dtx.Outcome.index: _outcome,
    dtx.Token.index: _token,
}
