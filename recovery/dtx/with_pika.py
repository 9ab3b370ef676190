"""Two-phase commit, and plain transactions whose outcome can be asked for, on pika's blocking connections.

``DtxConnection`` is to a broker what a connection of PEP 249 is to a database. Publish, get, consume and acknowledge on
its ``channel`` as usual. Neither class is for several threads at a time.

Class dtx is none of pika's. Its methods are added to ``pika.spec.methods``, the table by which pika decodes, and are
sent by the same two internal functions that ``BlockingChannel.tx_commit`` and its like use: there is no public way.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import pika
from pika import amqp_object, spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker

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
from recovery.dtx.errors import CLOSED, NotSupportedError, ProgrammingError, StaleDelivery
from recovery.dtx.hosts import checked_hosts, without_password
from recovery.dtx.lost import LOST, connected, why_refused
from recovery.dtx.plain import PlainTransactions
from recovery.dtx.tagged import TaggedConnection, Tags
from recovery.dtx.two_phase import TwoPhase
from txobserver.dtx_wire import METHODS, DtxMethod, Select
from txobserver.outcomes import BranchOutcome, GlobalState
from txobserver.xid import Global, Xid

Host: TypeAlias = str | pika.connection.Parameters
"""A url, or pika's parameters."""

OnChannel: TypeAlias = Callable[[BlockingChannel], None]
"""Told each new channel, the first one too: the place for basic_qos and basic_consume."""

T = TypeVar("T")


class _Carried(amqp_object.Method):  # type: ignore[misc]
    """A method of class dtx as pika encodes and decodes it."""

    kind: ClassVar[type[DtxMethod]]

    def __init__(self, method: DtxMethod | None = None) -> None:
        self.method = self.kind() if method is None else method

    @property
    def synchronous(self) -> bool:
        return self.kind.synchronous

    def decode(self, encoded: bytes, offset: int = 0) -> _Carried:
        self.method.unmarshal(encoded[offset:])
        return self

    def encode(self) -> list[bytes]:
        return [self.method.marshal()]


_CARRIED: dict[int, type[_Carried]] = {
    index: type(kind.name, (_Carried,), {"INDEX": index, "NAME": kind.name, "kind": kind})
    for index, kind in METHODS.items()
}
spec.methods.update(_CARRIED)


def _parameters(host: Host) -> pika.connection.Parameters:
    """Raises ProgrammingError for an url's option that pika does not know, or that has a value which cannot be."""
    try:
        return pika.URLParameters(host) if isinstance(host, str) else host
    except (ValueError, TypeError) as error:
        raise ProgrammingError(f"{without_password(str(host))!r} cannot be used: {error}") from None


class _Connection(ABC):
    """A channel in a mode of its own, on a connection to one of several hosts.

    Once it is closed, its methods raise ProgrammingError.
    """

    _ended = False

    def __init__(self, hosts: tuple[Host, ...], on_channel: OnChannel | None, tags: Tags | None = None) -> None:
        self._hosts = [_parameters(host) for host in checked_hosts(hosts)]
        self._on_channel = on_channel
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._tags = Tags() if tags is None else tags
        self._run(self._conversation.connect())

    @property
    @abstractmethod
    def _conversation(self) -> Conversation:
        """What asks for hosts and for outcomes."""

    @abstractmethod
    def _select(self) -> None:
        """Put a new channel into its mode."""

    @property
    def channel(self) -> BlockingChannel:
        """Where to publish, get, consume and acknowledge. There is another one after each loss: do not keep it.

        The tags of its messages are no other channel's: to settle one that a lost channel delivered raises
        StaleDelivery.
        """
        return self._channel

    @property
    def connection(self) -> BlockingConnection:
        """The present connection, for ``process_data_events``."""
        return self._connection

    def reconnect(self) -> None:
        """Another channel if this one is lost, for which the other methods do not wait. Raises OperationalError."""
        self._run(self._conversation.connect())
        self._tags.untold = False

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the server says of itself; another one may be connected to for that. Raises OperationalError."""
        self._run(self._conversation.connect())
        found: dict[str, Any] = self.connection._impl.server_properties
        return found

    def close(self) -> None:
        """End the connection. What was begun and not prepared is rolled back."""
        self._ended = True
        if self._channel is not None:
            self._tags.left(self._channel._impl)
        if self._connection is not None:
            with contextlib.suppress(*LOST):
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        """Carry a conversation out. Raises ProgrammingError on a connection that was closed."""
        if self._ended:
            raise ProgrammingError(CLOSED)
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._do(request)
                except (Lost, Refused) as error:
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found

    def _do(self, request: Request) -> Any:
        """Raises Lost, Refused."""
        if isinstance(request, Pause):
            time.sleep(request.seconds)
            return None
        if isinstance(request, Reconnect):
            return self._open()
        try:
            if isinstance(request, DtxMethod):
                return self._ask(request)
            return self.channel.tx_commit() if request is Plain.COMMIT else self.channel.tx_rollback()
        except ChannelClosedByBroker as error:
            raise Refused(error.reply_code, error.reply_text) from error
        except LOST as error:
            raise Lost(repr(error)) from error

    def _ask(self, method: DtxMethod) -> DtxMethod:
        answers: list[Any] = []
        reply = _CARRIED[method.index + 1]
        self.channel._impl._rpc(_CARRIED[method.index](method), answers.append, [reply])
        self.channel._flush_output(lambda: bool(answers))
        found: DtxMethod = answers[0].method.method
        return found

    def _open(self) -> bool:
        """A channel in the right mode, if there is none that is open. See ``Reconnect``."""
        try:
            if self._connection is None or not self._connection.is_open:
                self._connection = self._connect()
            if self._channel is None or not self._channel.is_open:
                if self._channel is not None:
                    self._tags.left(self._channel._impl)
                self._channel = self._connection.channel()
                self._select()
                if self._on_channel is not None:
                    self._on_channel(self._channel)
        except LOST as error:
            raise Lost(repr(error)) from error
        return self._tags.untold

    def _connect(self) -> BlockingConnection:
        """To the first host that answers, beginning with the one after the last. Raises Lost, LoginDenied."""
        reasons, refused = [], []
        for host in list(self._hosts):
            self._hosts.append(self._hosts.pop(0))
            try:
                found = connected(host, TaggedConnection)
                found._impl.tags = self._tags
            except LOST as error:
                if (refusal := why_refused(error, host)) is not None:
                    refused.append(refusal)
                reasons.append(f"{host.host}:{host.port}: {error!r}")
                continue
            if not found._impl.server_capabilities.get("dtx"):
                found.close()
                raise NotSupportedError(f"the server at {host.host}:{host.port} has no class dtx")
            return found
        if refused:
            raise LoginDenied(refused[0])
        raise Lost("; ".join(reasons))


class DtxConnection(_Connection):
    """A connection with PEP 249's two-phase methods, to the first of ``hosts`` that answers.

    ``patience``: seconds for which a lost answer is asked for, or a host looked for. After a lost connection the next
    call goes to the next host, and comes back when it knows what became of the branch. Errors: docs/errors.md.
    ``tags``: those of the connection that this one takes the place of.
    """

    def __init__(
        self,
        *hosts: Host,
        patience: float = PATIENCE,
        on_channel: OnChannel | None = None,
        tags: Tags | None = None,
    ) -> None:
        self._branch = TwoPhase(patience)
        super().__init__(hosts, on_channel, tags)

    @property
    def _conversation(self) -> Conversation:
        return self._branch

    def _select(self) -> None:
        self._ask(Select())

    # -- PEP 249

    def xid(self, format_id: int, global_transaction_id: str | bytes, branch_qualifier: str | bytes = b"") -> Xid:
        """A name for a branch: 0 to 2,147,483,647, 1 to 64 bytes, 0 to 64 bytes. Raises ProgrammingError."""
        return make_xid(format_id, global_transaction_id, branch_qualifier)

    def tpc_begin(self, xid: Xid, timeout: int | None = None) -> None:
        """From now on publishes and acknowledgements on the channel belong to this branch.

        ``timeout``: seconds in which it must be prepared, 0 for no limit. Raises ProgrammingError if the xid is in use
        or a branch is at hand, OperationalError if the connection is lost, in which case nothing has begun; of these
        StaleDelivery if there is another one, and what the lost one delivered and was not settled is delivered again.
        """
        try:
            self._run(self._branch.begin(xid, timeout))
        except StaleDelivery:
            self._tags.untold = False
            raise

    def tpc_prepare(self) -> bool:
        """The first phase. When it returns, the branch is on the disk of every ready node, and any crash leaves it.

        False if there was nothing to prepare: the branch has ended, and to commit or roll it back does nothing. Publish
        and acknowledge nothing until then. Raises RolledBack, and OutcomeUnknown; either leaves ``tpc_rollback``.
        """
        return self._run(self._branch.prepare())

    def tpc_commit(self, xid: Xid | None = None) -> None:
        """The second phase; or both in one, if the branch at hand is not prepared.

        With an xid: of a branch that is prepared, by any client, while none is at hand; it is no error if that has been
        committed. Raises RolledBack (in one phase; ``tpc_rollback`` is left), HeuristicOutcome, Conflict, UnknownXid,
        and OutcomeUnknown: ask again later, by ``outcome`` or by this method with the xid.
        """
        self._run(self._branch.commit() if xid is None else self._branch.others.commit(xid))

    def tpc_rollback(self, xid: Xid | None = None) -> None:
        """Give everything up, prepared or not. With an xid as in ``tpc_commit``.

        Raises HeuristicOutcome, Conflict if it has been committed, OutcomeUnknown, and UnknownXid.
        """
        self._run(self._branch.rollback() if xid is None else self._branch.others.rollback(xid))

    def tpc_recover(self) -> list[Xid]:
        """Branches that are prepared, or were decided by an operator and are not forgotten. Raises OperationalError."""
        return self._run(self._branch.others.recover())

    # -- beyond PEP 249

    def outcome(self, xid: Xid) -> BranchOutcome:
        """What became of a branch, or is becoming of it."""
        return self._run(self._branch.others.outcome(xid))

    def decide(self, which: Global, commit: bool) -> None:
        """Settle all branches of a global transaction (``xid.globally``) by one durable record.

        Those that are prepared end like that, whatever crashes; those that come later are refused. The same decision
        again does nothing; the other one raises Conflict. Raises HeuristicOutcome, OperationalError.
        """
        self._run(self._branch.others.decide(which, commit))

    def branches(self, which: Global) -> GlobalState:
        """The decision on a global transaction, and what became of each branch."""
        return self._run(self._branch.others.look(which))

    def forget(self, name: Xid | Global) -> None:
        """How a branch or a global transaction ended is not needed any more. Raises UnknownXid, Conflict."""
        self._run(self._branch.others.forget(name))


class TxConnection(_Connection):
    """A connection with a channel in tx mode, whose transactions have tokens to ask for their outcomes by.

    Parameters as for DtxConnection. Everything on the channel belongs to a transaction; ``commit`` or ``rollback``
    ends it, and the next one begins.
    """

    def __init__(self, *hosts: Host, patience: float = PATIENCE, on_channel: OnChannel | None = None) -> None:
        self._transactions = PlainTransactions(patience)
        super().__init__(hosts, on_channel)

    @property
    def _conversation(self) -> Conversation:
        return self._transactions

    def _select(self) -> None:
        self.channel.tx_select()

    def commit(self, token: bytes | None = None) -> None:
        """Commit; if the answer is lost, ask what became of it. Raises RolledBack, OutcomeUnknown, ProgrammingError.

        ``token``: 1 to 64 bytes that no other transaction has had, for who wants to ask later; else one by lot.
        """
        self._run(self._transactions.commit(secrets.token_bytes(16) if token is None else token))

    def rollback(self) -> None:
        """Give everything up."""
        self._run(self._transactions.rollback())

    def outcome(self, token: bytes) -> BranchOutcome:
        """What became of the transaction with this token. One in which nothing durable was done has none."""
        return self._run(self._transactions.outcome(token))
