"""psycopg's connections and cursors, to the fake PostgreSQL: what the product and SQLAlchemy use of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Protocol, Self

import psycopg
from psycopg import adapters
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus

from tests.coordinator_model import pg_itself  # noqa: F401  (what it knows is registered)
from tests.coordinator_model.pg_server import Server
from tests.coordinator_model.pg_session import Answer, Session
from tests.coordinator_model.pg_statements import parse


class Way(Protocol):
    """The way to a server. ``before`` and ``after`` may raise Broken, or whatever ends who sends."""

    def before(self, what: str) -> None:
        """A message has been sent."""

    def after(self, what: str, refused: bool = False) -> None:
        """It has been carried out, or refused."""

    def lost(self, late: Callable[[], Any] | None, end: Callable[[], None]) -> None:
        """The client knows that the connection is lost. The server does what is ``late``, if anything, and ``end``s."""


class Broken(Exception):
    """The connection is lost. ``late``: what was sent is on its way still."""

    late = False


class Straight:
    """Nothing happens on it."""

    def before(self, what: str) -> None:
        """It arrives."""

    def after(self, what: str, refused: bool = False) -> None:
        """It is answered."""

    def lost(self, late: Callable[[], Any] | None, end: Callable[[], None]) -> None:
        """At once."""
        end()


class Unused:
    """Stands for everything of psycopg's that is not there; to use it is a mistake of the tester's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: object = None) -> Any:
        raise AssertionError(f"the fake connection has no {self._name}")


class FakeCursor:
    """Of ``execute``: all answers of one message, one after the other."""

    def __init__(self, connection: FakeConnection, *_: Any, **__: Any) -> None:
        self.connection = connection
        self.answers: list[Answer] = []
        self._left: list[tuple[Any, ...]] = []
        self.arraysize = 1

    def execute(self, query: Any, values: Any = None, **_: Any) -> Self:
        """One message."""
        text = query.decode() if isinstance(query, bytes) else str(query)
        self.answers = self.connection.send(text, values)
        self._left = list(self.answers[0].rows) if self.answers else []
        return self

    def nextset(self) -> bool | None:
        """On to the next answer."""
        if len(self.answers) < 2:
            return None
        del self.answers[0]
        self._left = list(self.answers[0].rows)
        return True

    @property
    def description(self) -> Any:
        """As PEP 249 has it, but for the types."""
        columns = self.answers[0].columns if self.answers else None
        return None if columns is None else [(name, 25, None, None, None, None, None) for name in columns]

    @property
    def rowcount(self) -> int:
        """Of the answer."""
        return self.answers[0].count if self.answers else -1

    @property
    def statusmessage(self) -> str:
        """Of the answer."""
        return self.answers[0].told

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row. Raises ProgrammingError for an answer without rows."""
        self._check()
        return self._left.pop(0) if self._left else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        self._check()
        found, self._left = self._left, []
        return found

    def _check(self) -> None:
        if not self.answers or self.answers[0].columns is None:
            raise psycopg.ProgrammingError("the last operation didn't produce records")

    def close(self) -> None:
        """Nothing to let go of."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FakeConnection(psycopg.Connection[Any]):
    """As psycopg's own, which its transaction blocks and ``tpc_`` methods follow line by line.

    Many methods: a double of psycopg's connection, whose methods it has.
    """

    pgconn = SimpleNamespace(pipeline_status=PipelineStatus.OFF)
    """Everything that was sent has been answered."""

    def __init__(self, server: Server, database: str, dsn: str, options: dict[str, Any], way: Way) -> None:
        given = {**conninfo_to_dict(dsn), **{key: value for key, value in options.items() if value is not None}}
        self._given = {key: value for key, value in given.items() if key not in ("autocommit", "connect_timeout")}
        self._way = way
        self.session = Session(server, database, str(given.get("user", "owner")), _settings(given.get("options")))
        self._together = False
        self._is_autocommit = bool(options.get("autocommit"))
        self._isolation = None
        self._ended = self._lost = False
        self._branch: tuple[psycopg.Xid, bool] | None = None
        self._status = TransactionStatus.IDLE
        """As the server has told it last: that it is gone is not known before the next message."""

    def __del__(self, *_: Any) -> None:
        """Nothing warns."""

    # -- messages

    @contextmanager
    def pipeline(self) -> Iterator[Any]:
        """What is sent in it is on the way with the first message, and nothing happens in between."""
        way, self._together = self._way, True
        try:
            yield
        finally:
            self._way, self._together = way, False

    def send(self, text: str, values: Any = None, begin: bool = True) -> list[Answer]:
        """One message, and its answers. Raises psycopg.Error."""
        answers = self._send(text, values, begin)
        if self._together:
            self._way = Straight()
        return answers

    def _send(self, text: str, values: Any, begin: bool) -> list[Answer]:
        self._check_open()
        if begin and not self._is_autocommit and self._status is TransactionStatus.IDLE:
            self._send(self._begin_command, None, begin=False)
        statements = parse(self.session, text, values)
        try:
            self._way.before(text)
            self._check_alive()
            try:
                answers = self.session.message(statements)
            except psycopg.Error:
                self._check_alive()
                self._status = self.session.status
                self._way.after(text, refused=True)
                raise
            self._status = self.session.status
            self._way.after(text)
        except Broken as error:
            self._lost = True
            late = (lambda: self.session.message(statements) if self.session.alive else None) if error.late else None
            self._way.lost(late, self.session.end)
            raise psycopg.OperationalError("server closed the connection unexpectedly") from error
        return answers

    def _check_open(self) -> None:
        """psycopg looks for its socket before anything else."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")

    def _check_alive(self) -> None:
        if not self.session.alive:
            raise Broken

    @property
    def _begin_command(self) -> str:
        level = "" if self._isolation is None else " ISOLATION LEVEL " + self._isolation.name.replace("_", " ")
        return f"BEGIN{level}"

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        """Through a cursor."""
        return FakeCursor(self).execute(query, params)

    def cursor(self, *_: Any, **__: Any) -> Any:
        """Another one."""
        self._check_open()
        return FakeCursor(self)

    # -- what it is

    @property
    def info(self) -> Any:
        """What is asked of it."""
        status = TransactionStatus.UNKNOWN if self.closed else self._status
        shown = {key: value for key, value in self._given.items() if key != "password"}
        return SimpleNamespace(
            transaction_status=status,
            dsn=make_conninfo("", **shown),
            password=self._given.get("password", ""),
            dbname=self._given.get("dbname"),
            server_version=150009,
            encoding="utf-8",
        )

    @property
    def closed(self) -> bool:
        """By either side, as far as is known here."""
        return self._ended or self._lost

    @property
    def broken(self) -> bool:
        """By the other side."""
        return self._lost and not self._ended

    @property
    def adapters(self) -> Any:
        """psycopg's."""
        return adapters

    def add_notice_handler(self, callback: Any) -> None:
        """There are no notices."""

    @property
    def autocommit(self) -> bool:
        """Whether each message is a transaction."""
        return self._is_autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._check_idle()
        self._is_autocommit = value

    @property
    def isolation_level(self) -> Any:
        """Of transactions to come; None: as the database has it."""
        return self._isolation

    @isolation_level.setter
    def isolation_level(self, value: Any) -> None:
        self._check_idle()
        self._isolation = value

    def _check_idle(self) -> None:
        if self._status is not TransactionStatus.IDLE:
            raise psycopg.ProgrammingError("a transaction is open")

    # -- transactions

    def commit(self) -> None:
        """COMMIT, if there is anything to commit."""
        self._finish("COMMIT")

    def rollback(self) -> None:
        """ROLLBACK, if there is anything to roll back."""
        self._finish("ROLLBACK")

    def _finish(self, what: str) -> None:
        self._check_open()
        if self._branch is not None:
            raise psycopg.ProgrammingError(f"{what.lower()}() cannot be used during a two-phase transaction")
        if self._status is not TransactionStatus.IDLE:
            self.send(what, begin=False)

    def close(self) -> None:
        """Let go of the server."""
        if not self.closed:
            self._ended = True
            self.session.end()
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.closed:
            return
        if kind is None:
            self.commit()
        else:
            with suppress(psycopg.Error):
                self.rollback()
        self.close()

    # -- two phases

    def xid(self, format_id: int, gtrid: str, bqual: str) -> psycopg.Xid:
        """psycopg's own."""
        return psycopg.Xid.from_parts(format_id, gtrid, bqual)

    def tpc_begin(self, xid: Any) -> None:
        """A transaction that can be prepared."""
        self._check_open()
        if self._status is not TransactionStatus.IDLE or self._is_autocommit:
            raise psycopg.ProgrammingError("can't start two-phase transaction")
        self._branch = (xid, False)
        self.send(self._begin_command, begin=False)

    def tpc_prepare(self) -> None:
        """PREPARE TRANSACTION."""
        self._check_open()
        if self._branch is None or self._branch[1]:
            raise psycopg.ProgrammingError("'tpc_prepare()' must be called inside a two-phase transaction")
        xid = self._branch[0]
        self._branch = (xid, True)
        self.send(f"PREPARE TRANSACTION '{xid}'", begin=False)

    def tpc_commit(self, xid: Any = None) -> None:
        """The one at hand, or another one."""
        self._tpc_finish("COMMIT", xid)

    def tpc_rollback(self, xid: Any = None) -> None:
        """The same."""
        self._tpc_finish("ROLLBACK", xid)

    def _tpc_finish(self, what: str, xid: Any) -> None:
        self._check_open()
        if (xid is None) is (self._branch is None):
            raise psycopg.ProgrammingError("an xid is for who is outside a two-phase transaction")
        if self._branch is not None and not self._branch[1]:
            self._branch = None
            self._finish(what)
            return
        name = xid if self._branch is None else self._branch[0]
        self.send(f"{what} PREPARED '{name}'", begin=False)
        self._branch = None

    def tpc_recover(self) -> list[psycopg.Xid]:
        """pg_prepared_xacts."""
        alone = self._status is TransactionStatus.IDLE
        rows = self.execute("SELECT gid, prepared, owner, database FROM pg_prepared_xacts").fetchall()
        if alone and self._status is TransactionStatus.INTRANS:
            self.rollback()
        return [psycopg.Xid._from_record(*row) for row in rows]


for _name in dir(psycopg.Connection):
    if not _name.startswith("_") and _name not in vars(FakeConnection):
        setattr(FakeConnection, _name, Unused(_name))


def _settings(options: Any) -> dict[str, str]:
    """What ``options='-c name=value …'`` sets."""
    words = str(options or "").replace("-c ", "-c").split(" -c")
    found = [word.removeprefix("-c").strip().split("=", 1) for word in words if word]
    return {name: value.replace("\\ ", " ") for name, value in found}


Connect = Callable[..., FakeConnection]
