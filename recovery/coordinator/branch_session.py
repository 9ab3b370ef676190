"""The session at PostgreSQL in which one branch after the other is worked on, over a connection that may be lost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus

from recovery.coordinator.resources import LEFT, BranchRolledBack, ResourceLost, ResourceRefused
from txobserver.xid import Xid

_CONNECT_SECONDS = 10
"""That a connection may take to come, where neither the application nor its DSN nor the environment says so."""


class BranchSession:
    """A connection that is opened when it is needed, and again when it was lost; ``options`` are psycopg's.

    ``at_hand``: the branch that what is executed over it belongs to, None for none. It is lost with the connection.
    """

    def __init__(self, dsn: str, options: Mapping[str, Any]) -> None:
        self._dsn = dsn
        self._options = options
        self._connection: psycopg.Connection[Any] | None = None
        self.at_hand: Xid | None = None

    def for_work(self) -> psycopg.Connection[Any]:
        """The connection. Raises ResourceLost, also if the branch at hand was begun on one that is lost."""
        if self.at_hand is not None and (self._connection is None or self._connection.closed):
            raise ResourceLost("the connection on which the branch was begun is lost")
        return self.open()

    def open(self) -> psycopg.Connection[Any]:
        """The connection that stands, or a new one, on which no branch is at hand.

        It does not stand any more where the application has left it in pipeline mode: nothing would be answered.
        """
        if self.at_hand is None and self._connection is not None and in_pipeline(self._connection):
            self.close()
        if self._connection is None or self._connection.closed:
            self.at_hand = None
            try:
                self._connection = psycopg.connect(self._dsn, **self._all_options())
            except psycopg.OperationalError as error:
                raise ResourceLost(sentence(error)) from None
            except psycopg.Error as error:  # the DSN cannot be one
                raise ResourceRefused(sentence(error)) from None
        return self._connection

    def _all_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"prepare_threshold": None}
        if "connect_timeout" not in conninfo_to_dict(self._dsn) and "PGCONNECT_TIMEOUT" not in os.environ:
            options["connect_timeout"] = _CONNECT_SECONDS
        return {**options, **self._options}

    @contextmanager
    def answered(self) -> Iterator[psycopg.Connection[Any]]:
        """Errors become those of resources."""
        connection = self.open()
        try:
            yield connection
        except psycopg.Error as error:
            kind = ResourceLost if connection.closed else ResourceRefused
            if self.at_hand is None:
                self.close()  # whatever state the session was left in
            raise kind(sentence(error)) from error

    def standing(self, xid: Xid) -> psycopg.Connection[Any] | None:
        """The connection if this branch is at hand on it, and it can be asked; else None."""
        connection = self._connection
        if self.at_hand != xid or connection is None or connection.closed or in_pipeline(connection):
            return None
        return connection

    def check_at_hand(self, xid: Xid, left: type[Exception] = BranchRolledBack) -> None:
        """What is executed is of the branch at hand, and so is what is prepared."""
        if self.at_hand != xid:
            raise left(LEFT)

    def leave(self) -> None:
        """Close the connection if a branch is at hand on it, which is worked on no more; else it stays."""
        if self.at_hand is not None:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self.at_hand = None


def in_pipeline(connection: psycopg.Connection[Any]) -> bool:
    """Whether the application has begun it, and not left; what is ours does so in one go."""
    return not connection.closed and connection.pgconn.pipeline_status != PipelineStatus.OFF


def sentence(error: psycopg.Error) -> str:
    """What PostgreSQL or psycopg says, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
