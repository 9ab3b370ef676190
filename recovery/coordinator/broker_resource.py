"""A broker with class dtx as a resource, over pika."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pika.adapters.blocking_connection import BlockingChannel

from recovery.coordinator.names import broker_name
from recovery.coordinator.resources import LEFT, BranchRolledBack, Participant, ResourceLost, ResourceRefused
from recovery.dtx import errors
from recovery.dtx.hosts import checked_hosts
from recovery.dtx.tagged import Tags
from recovery.dtx.with_pika import DtxConnection, Host, OnChannel
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

ANSWER_SECONDS = 5.0
"""Patience with a broker that is lost: how long one call looks for a host, or for the outcome behind a lost answer."""

_AT_RESOURCE = {each: each for each in BranchOutcome} | {
    BranchOutcome.PENDING: BranchOutcome.PREPARED,
    BranchOutcome.ACTIVE: BranchOutcome.UNKNOWN,
    BranchOutcome.EXPIRED: BranchOutcome.UNKNOWN,
}
"""What the broker's answer says of a branch that has prepared."""


class Broker:
    """One cluster, at any of ``hosts`` (urls, or pika's parameters): over one connection, opened when it is needed.

    ``on_channel`` is told each new channel: the place for basic_qos and basic_consume. ``patience``: seconds.
    Raises TypeError, and ProgrammingError for an url that cannot be.
    """

    def __init__(self, *hosts: Host, patience: float = ANSWER_SECONDS, on_channel: OnChannel | None = None) -> None:
        self._hosts = checked_hosts(hosts)
        self._patience = patience
        self._on_channel = on_channel
        self._tags = Tags()
        self._client: DtxConnection | None = None
        self._at_hand: Xid | None = None
        self._name: str | None = None

    @contextmanager
    def _answered(self) -> Iterator[DtxConnection]:
        """Errors become those of resources.

        Whatever else comes, a KeyboardInterrupt or what a signal's handler raises, has left the connection in the
        middle of something: it is let go of, now or when the branch at hand is left.
        """
        try:
            if self._client is None:
                self._client = DtxConnection(
                    *self._hosts, patience=self._patience, on_channel=self._on_channel, tags=self._tags
                )
            yield self._client
        except (errors.RolledBack, errors.HeuristicOutcome, BranchRolledBack, ResourceLost, ResourceRefused):
            raise
        except errors.OperationalError as error:
            raise ResourceLost(str(error)) from error
        except errors.DatabaseError as error:
            raise ResourceRefused(str(error)) from error
        except BaseException:
            if self._at_hand is None:
                self.close()
            raise

    @property
    def name(self) -> str:
        """The cluster's name, and its random identity, as two clusters may have one name.

        A node of an earlier version tells no identity. Raises ResourceRefused of a server that tells no name.
        """
        if self._name is None:
            with self._answered() as client:
                told = client.server_properties
            cluster, cluster_id = (_text(told.get(key, "")) for key in ("cluster_name", "cluster_id"))
            if not cluster:
                raise ResourceRefused("the server does not say which cluster it belongs to (cluster_name)")
            self._name = broker_name(cluster, cluster_id)
        return self._name

    @property
    def channel(self) -> BlockingChannel:
        """Where to publish, get, consume and acknowledge; another one after each loss. Raises ResourceLost.

        To acknowledge what a lost channel delivered raises StaleDelivery.
        """
        with self._answered() as client:
            return client.channel

    # -- work

    def channel_in(self, xid: Xid) -> BlockingChannel:
        """The channel, for work in this branch. Raises ResourceLost, also if another one has begun over it since."""
        self._check_at_hand(xid, ResourceLost)
        return self.channel

    def _check_at_hand(self, xid: Xid, left: type[Exception] = BranchRolledBack) -> None:
        """What is published is of the branch at hand, and so is what is prepared; without one it acts at once."""
        if self._at_hand != xid:
            raise left(LEFT)

    def begin(self, xid: Xid) -> None:
        """A branch of an earlier transaction that could not be left properly is left with its connection.

        Raises ResourceLost, too, when the channel was lost since and had delivered what was not settled: there is
        another one now, on which that is delivered again.
        """
        self.leave()
        with self._answered() as client:
            self._at_hand = xid  # first: a begin that is interrupted is left by the next one
            try:
                client.tpc_begin(xid)
            except BaseException:
                self._at_hand = None
                raise

    def prepare(self, xid: Xid) -> Participant | None:
        """On the disk of every ready node."""
        self._check_at_hand(xid)
        with self._answered() as client:
            try:
                if client.tpc_prepare():
                    return Participant(self.name, xid.bqual.decode())
                client.tpc_commit()
            except errors.RolledBack as error:
                self.abandon(xid)
                raise BranchRolledBack(str(error)) from error
        self._at_hand = None
        return None

    def commit_in_one_phase(self, xid: Xid) -> None:
        """Prepare and decision in one call; a lost answer is asked for."""
        self._check_at_hand(xid)
        with self._answered() as client:
            try:
                client.tpc_commit()
            except errors.RolledBack as error:
                self.abandon(xid)
                raise BranchRolledBack(str(error)) from error
        self._at_hand = None

    def abandon(self, xid: Xid) -> None:
        """On its own connection if that stands; a lost one rolls back by itself, unless the branch has prepared."""
        if self._at_hand != xid:
            return
        with self._answered() as client, suppress(errors.HeuristicOutcome, errors.Conflict):  # recovery reports it
            client.tpc_rollback()
        self._at_hand = None

    # -- branches that are prepared

    def in_doubt(self) -> list[Xid]:
        """Of the whole cluster."""
        with self._answered() as client:
            return client.tpc_recover()

    def settle(self, xid: Xid, commit: bool, ticket: str) -> BranchOutcome:
        """tpc_commit or tpc_rollback by name."""
        with self._answered() as client:
            named = None if self._at_hand == xid else xid
            self._at_hand = None  # whatever comes now: the branch has ended, or has its name only
            try:
                (client.tpc_commit if commit else client.tpc_rollback)(named)
            except errors.HeuristicOutcome as error:
                return _AT_RESOURCE[error.outcome]
            except errors.RolledBack:
                if named is None:
                    client.tpc_rollback()  # or it stays the client's branch, which can begin no other one
                return BranchOutcome.ROLLED_BACK
            except errors.UnknownXid:
                return self.fate(xid, ticket)
            except errors.Conflict:
                fate = self.fate(xid, ticket)
                if fate is BranchOutcome.PREPARED:
                    raise
                return fate
            except errors.OutcomeUnknown as error:
                if error.outcome in (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED):
                    return BranchOutcome.UNKNOWN
                raise
        return BranchOutcome.COMMITTED if commit else BranchOutcome.ROLLED_BACK

    def fate(self, xid: Xid, ticket: str) -> BranchOutcome:
        """For as long as the broker remembers outcomes. It keeps no trace of rollbacks: those are unknown, too."""
        with self._answered() as client:
            return _AT_RESOURCE[client.outcome(xid)]

    def fence(self, xid: Xid) -> None:
        """By a global decision, which also settles what has prepared; it is remembered as long as outcomes are."""
        with self._answered() as client, suppress(errors.HeuristicOutcome):
            client.decide(xid.globally, False)

    def forget(self, xid: Xid) -> None:
        """dtx.forget; that another client has done it already is no matter."""
        with self._answered() as client, suppress(errors.UnknownXid):
            client.forget(xid)

    def leave(self) -> None:
        """End the connection if a branch is at hand on it, which has no owner any more; else it stays."""
        if self._at_hand is not None:
            self.close()

    def close(self) -> None:
        """End the connection: what was begun and not prepared is rolled back."""
        if self._client is not None:
            self._client.close()
        self._client = self._at_hand = None


def _text(told: str | bytes) -> str:
    return told if isinstance(told, str) else told.decode()
