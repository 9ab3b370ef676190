"""What an operator sees and decides of distributed transactions, at the active primary (``txha dtx``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker_plugin.admin.answers import answering
from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.logs.events import OperatorDecides
from broker_plugin.logs.formats import tell
from broker_plugin.node.operator_branches import NoSuchBranch, OperatorBranches
from broker_plugin.node.shell import Shell, wall_ms
from ha.core import NodeCore
from txobserver.outcomes import BranchOutcome, PreparedBranch
from txobserver.ports.ledger import Done
from txobserver.vhosts import shown_name
from txobserver.xid import Xid, parse_xid

log = logging.getLogger("txha.dtx")
DEADLINE_SECONDS = 10.0
"""Seconds for which a decision may take to pass the commit point before the operator is told that it is not known."""


class BranchAdmin:
    """The commands of ``txha dtx``. What is decided here is decided against the coordinator, so it goes to the log."""

    def __init__(self, core: NodeCore, branches: OperatorBranches, shell: Shell) -> None:
        self._core = core
        self._branches = branches
        self._shell = shell

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {
            "dtx.list": _refusing(self._list),
            "dtx.show": _refusing(self._show),
            "dtx.commit": _refusing(self._commit),
            "dtx.rollback": _refusing(self._rollback),
            "dtx.forget": _refusing(self._forget),
        }

    async def _list(self, arguments: dict[str, Any]) -> Any:
        self._check_active()
        content = self._branches.content
        rows = [self._prepared(branch) for branch in content.branches()]
        return rows + [_row(xid, content.outcome(xid)) for xid in content.heuristic_branches()]

    async def _show(self, arguments: dict[str, Any]) -> Any:
        self._check_active()
        xid = _xid(arguments)
        content = self._branches.content
        branch, outcome = content.prepared_branch(xid), self._branches.outcome(xid)
        if branch is None and outcome in (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED):
            raise CommandRefused(self._branches.unknown(xid))
        row = self._prepared(branch) if branch is not None else _row(xid, outcome)
        return {**row, "decision": _words(content.global_decision(xid.format_id, xid.gtrid))}

    async def _commit(self, arguments: dict[str, Any]) -> Any:
        return await self._decide(_xid(arguments), True)

    async def _rollback(self, arguments: dict[str, Any]) -> Any:
        return await self._decide(_xid(arguments), False)

    async def _decide(self, xid: Xid, commit: bool) -> Any:
        await self._carry_out(
            lambda done: self._branches.decide(xid, commit, done),
            lambda: tell(log, logging.WARNING, OperatorDecides(str(xid), commit)),
        )
        return {"xid": str(xid), "state": _words(self._branches.outcome(xid))}

    async def _forget(self, arguments: dict[str, Any]) -> Any:
        xid = _xid(arguments)
        await self._carry_out(lambda done: self._branches.forget(xid, done))
        return {"xid": str(xid), "state": "forgotten"}

    async def _carry_out(self, ask: Callable[[Done], None], taken: Callable[[], None] | None = None) -> None:
        """Ask, and wait until it has passed the commit point; ``taken`` is called if it is not refused at once.

        Raises CommandRefused.
        """
        self._check_active()
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        refused: list[str] = []

        def asking() -> None:
            try:
                ask(answering(answer))
            except NoSuchBranch as error:
                refused.append(str(error))

        self._shell.report(asking)
        if refused:
            raise CommandRefused(refused[0])
        if taken is not None and not (answer.done() and answer.result() is not None):
            taken()
        try:
            error = await asyncio.wait_for(answer, DEADLINE_SECONDS)
        except TimeoutError:
            raise CommandRefused(f"not known after {DEADLINE_SECONDS:g} s, look with `txha dtx show`") from None
        if error is not None:
            raise CommandRefused(error)

    def _check_active(self) -> None:
        """Also after the process was stopped for a while: what it holds may be of a reign that is over."""
        self._shell.look_at_clock()
        if not self._branches.active:
            record = self._core.record
            primary = record.primary.node if record and record.primary else None
            where = f"ask {primary}" if primary and self._core.leading is None else "there is none at the moment"
            raise CommandRefused(f"this node is not the active primary; {where}")

    def _prepared(self, branch: PreparedBranch) -> dict[str, Any]:
        names = {spec.number: shown_name(spec.name) for spec in self._branches.content.configuration.queues.values()}
        return {
            **_row(branch.xid, self._branches.outcome(branch.xid)),
            "age": max(0, wall_ms() - branch.prepared_ms) / 1000,
            "generation": branch.generation,
            "enqueues": {names.get(queue, str(queue)): count for queue, count in branch.enqueues.items()},
            "dequeues": {names.get(queue, str(queue)): len(entries) for queue, entries in branch.locked.items()},
        }


def _refusing(handler: Handler) -> Handler:
    """What the broker refuses (this node may have ceased to be primary meanwhile) is refused to the operator."""

    async def handle(arguments: dict[str, Any]) -> Any:
        try:
            return await handler(arguments)
        except AmqpError as error:
            raise CommandRefused(error.text) from error

    return handle


def _row(xid: Xid, outcome: BranchOutcome) -> dict[str, Any]:
    return {"xid": str(xid), "state": _words(outcome)}


def _words(outcome: BranchOutcome) -> str:
    return outcome.name.lower().replace("_", " ")


def _xid(arguments: dict[str, Any]) -> Xid:
    try:
        return parse_xid(str(arguments.get("xid")))
    except ValueError as error:
        raise CommandRefused(str(error)) from None
