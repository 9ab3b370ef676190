"""Two-phase commit, and plain transactions whose outcome can be asked for, on aio-pika: ``with_pika`` for event loops.

The classes are asynchronous context managers, and connect when they are entered. Methods mean what they mean in
``with_pika``, where their parameters are explained; none may be called while another one of the same connection runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeAlias, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ProbableAuthenticationError,
)
from yarl import URL

from recovery.dtx.arguments import make_xid
from recovery.dtx.conversation import (
    PATIENCE,
    Conversation,
    LoginDenied,
    Lost,
    Pause,
    Plain,
    Reconnect,
    Refused,
    Request,
    Steps,
)
from recovery.dtx.errors import CLOSED, NotSupportedError, ProgrammingError
from recovery.dtx.hosts import checked_hosts, login_refused
from recovery.dtx.plain import PlainTransactions
from recovery.dtx.two_phase import TwoPhase
from txobserver.dtx_wire import DtxMethod, End, Select, register
from txobserver.outcomes import BranchOutcome, GlobalState
from txobserver.xid import Global, Xid

register()

OnChannel: TypeAlias = Callable[[AbstractChannel], Awaitable[None]]
"""Told each new channel, the first one too: the place for set_qos and consume."""

CONNECT_SECONDS = 20.0
"""For which one host is waited for; a broker without a primary keeps new connections waiting for up to 15."""

CLOSING_SECONDS = 10.0
"""For which a channel that is being closed is waited for; aio-pika itself waits no longer."""

LOST = (AMQPError, OSError, TimeoutError, RuntimeError)
"""What aio-pika raises when a connection goes in the middle of something."""

CODES: dict[type[BaseException], int] = {
    ChannelAccessRefused: 403,
    ChannelNotFoundEntity: 404,
    ChannelLockedResource: 405,
    ChannelPreconditionFailed: 406,
}
"""Codes that aiormq tells by type; others are the first argument of a ChannelClosed."""

T = TypeVar("T")


def _lost_or_refused(error: BaseException) -> Lost | Refused:
    """What an error of aio-pika means for a conversation."""
    if isinstance(error, ChannelClosed):
        if (code := CODES.get(type(error))) is not None:
            return Refused(code, str(error.args[0]))
        if error.args and isinstance(error.args[0], int):
            return Refused(error.args[0], str(error.args[1]))
    return Lost(repr(error))


class _Connection(ABC):
    """A channel in a mode of its own, on a connection to one of several hosts.

    Once it is closed, its methods raise ProgrammingError, and it is not entered again.
    """

    def __init__(self, hosts: tuple[str | URL, ...], on_channel: OnChannel | None) -> None:
        self._hosts = [URL(host) for host in checked_hosts(hosts)]
        self._on_channel = on_channel
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._ended = False

    @property
    @abstractmethod
    def _conversation(self) -> Conversation:
        """What asks for hosts and for outcomes."""

    @abstractmethod
    async def _select(self) -> None:
        """Put a new channel into its mode."""

    @property
    def channel(self) -> AbstractChannel:
        """Where to publish, get, consume and acknowledge. There is another one after each loss: do not keep it.

        Raises RuntimeError before the connection is entered.
        """
        if self._channel is None:
            raise RuntimeError("not connected: use it in `async with`")
        return self._channel

    async def reconnect(self) -> None:
        """Another channel if this one is lost, for which the other methods do not wait. Raises OperationalError."""
        await self._run(self._conversation.connect())

    async def close(self) -> None:
        """End the connection. What was begun and not prepared is rolled back."""
        self._ended = True
        await self._let_go()

    async def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(*LOST):
                await self._connection.close()

    async def __aenter__(self) -> Self:
        await self.reconnect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        """Carry a conversation out. Raises ProgrammingError on a connection that was closed."""
        if self._ended:
            raise ProgrammingError(CLOSED)
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._do(request)
                except (Lost, Refused) as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found

    async def _do(self, request: Request) -> Any:
        """Raises Lost, Refused."""
        if isinstance(request, Pause):
            return await asyncio.sleep(request.seconds)
        if isinstance(request, Reconnect):
            return await self._open()
        try:
            if isinstance(request, DtxMethod):
                return await self._ask(request)
            channel = await self.channel.get_underlay_channel()
            return await (channel.tx_commit() if request is Plain.COMMIT else channel.tx_rollback())
        except LOST as error:
            closed_by = await self._closed_by(error)
            # Work in a branch was refused, if that is still to be ended.
            refused = closed_by if isinstance(request, End) and isinstance(closed_by, ChannelClosed) else error
            raise _lost_or_refused(refused) from error

    async def _closed_by(self, error: BaseException) -> BaseException | None:
        """What the channel was closed with on which a call has failed with ``error``; None if it is not closed.

        A channel that is being closed refuses calls some turns of the event loop before it tells the broker's error.
        """
        if self._channel is None:
            return None
        channel: Any = await self._channel.get_underlay_channel()
        closing: asyncio.Future[Any] = channel.closing
        if isinstance(error, ChannelInvalidStateError):
            await asyncio.wait({closing}, timeout=CLOSING_SECONDS)
        return closing.exception() if closing.done() and not closing.cancelled() else None

    async def _ask(self, method: DtxMethod) -> Any:
        channel: Any = await self.channel.get_underlay_channel()
        return await channel.rpc(method)

    async def _open(self) -> None:
        """A channel in the right mode, if there is none that is open."""
        try:
            if self._connection is None or not self._connection.connected.is_set():
                await self._let_go()
                self._connection = await self._connect()
            if self._channel is None or self._channel.is_closed:
                self._channel = await self._connection.channel(publisher_confirms=False)
                await self._select()
                if self._on_channel is not None:
                    await self._on_channel(self._channel)
        except LOST as error:
            raise Lost(repr(error)) from error

    async def _connect(self) -> AbstractConnection:
        """To the first host that answers, beginning with the one after the last. Raises Lost, LoginDenied."""
        reasons, refused = [], []
        for host in list(self._hosts):
            self._hosts.append(self._hosts.pop(0))
            try:
                found = await aio_pika.connect(host, timeout=CONNECT_SECONDS)
            except LOST as error:
                if isinstance(error, ProbableAuthenticationError):
                    refused.append(login_refused(f"{host.host}:{host.port}", str(host.user)))
                reasons.append(f"{host.host}:{host.port}: {error!r}")
                continue
            if not _has_dtx(found):
                await found.close()
                raise NotSupportedError(f"the server at {host.host}:{host.port} has no class dtx")
            return found
        if refused:
            raise LoginDenied(refused[0])
        raise Lost("; ".join(reasons))


def _has_dtx(connection: AbstractConnection) -> bool:
    assert connection.transport is not None
    capabilities = connection.transport.connection.server_properties.get("capabilities")
    return isinstance(capabilities, dict) and bool(capabilities.get("dtx"))


class AioDtxConnection(_Connection):
    """A connection with PEP 249's two-phase methods as coroutines. Parameters as for ``DtxConnection``."""

    def __init__(self, *hosts: str | URL, patience: float = PATIENCE, on_channel: OnChannel | None = None) -> None:
        self._branch = TwoPhase(patience)
        super().__init__(hosts, on_channel)

    @property
    def _conversation(self) -> Conversation:
        return self._branch

    async def _select(self) -> None:
        await self._ask(Select())

    # -- PEP 249

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes = b"") -> Xid:
        """A name for a branch: 0 to 2,147,483,647, 1 to 64 bytes, 0 to 64 bytes. Raises ProgrammingError."""
        return make_xid(format_id, global_transaction_id, branch_qualifier)

    async def tpc_begin(self, xid: Xid, timeout: int | None = None) -> None:
        """From now on publishes and acknowledgements on the channel belong to this branch."""
        await self._run(self._branch.begin(xid, timeout))

    async def tpc_prepare(self) -> bool:
        """The first phase. False if there was nothing to prepare. Raises RolledBack, OutcomeUnknown."""
        return await self._run(self._branch.prepare())

    async def tpc_commit(self, xid: Xid | None = None) -> None:
        """The second phase, or both in one, or with an xid that of a branch of any client.

        Raises RolledBack, HeuristicOutcome, Conflict, UnknownXid, OutcomeUnknown.
        """
        await self._run(self._branch.commit() if xid is None else self._branch.others.commit(xid))

    async def tpc_rollback(self, xid: Xid | None = None) -> None:
        """Give everything up. Raises HeuristicOutcome, Conflict, UnknownXid, OutcomeUnknown."""
        await self._run(self._branch.rollback() if xid is None else self._branch.others.rollback(xid))

    async def tpc_recover(self) -> list[Xid]:
        """Branches that are prepared, or were decided by an operator and are not forgotten. Raises OperationalError."""
        return await self._run(self._branch.others.recover())

    # -- beyond PEP 249

    async def outcome(self, xid: Xid) -> BranchOutcome:
        """What became of a branch, or is becoming of it."""
        return await self._run(self._branch.others.outcome(xid))

    async def decide(self, which: Global, commit: bool) -> None:
        """Settle all branches of a global transaction. Raises Conflict, HeuristicOutcome, OperationalError."""
        await self._run(self._branch.others.decide(which, commit))

    async def branches(self, which: Global) -> GlobalState:
        """The decision on a global transaction, and what became of each branch."""
        return await self._run(self._branch.others.look(which))

    async def forget(self, name: Xid | Global) -> None:
        """How a branch or a global transaction ended is not needed any more. Raises UnknownXid, Conflict."""
        await self._run(self._branch.others.forget(name))


class AioTxConnection(_Connection):
    """A connection with a channel in tx mode, whose transactions have tokens, as those of ``TxConnection``."""

    def __init__(self, *hosts: str | URL, patience: float = PATIENCE, on_channel: OnChannel | None = None) -> None:
        self._transactions = PlainTransactions(patience)
        super().__init__(hosts, on_channel)

    @property
    def _conversation(self) -> Conversation:
        return self._transactions

    async def _select(self) -> None:
        await (await self.channel.get_underlay_channel()).tx_select()

    async def commit(self, token: bytes | None = None) -> None:
        """Commit, and ask what became of it if need be. Raises RolledBack, OutcomeUnknown, ProgrammingError."""
        await self._run(self._transactions.commit(secrets.token_bytes(16) if token is None else token))

    async def rollback(self) -> None:
        """Give everything up."""
        await self._run(self._transactions.rollback())

    async def outcome(self, token: bytes) -> BranchOutcome:
        """What became of the transaction with this token. One in which nothing durable was done has none."""
        return await self._run(self._transactions.outcome(token))
