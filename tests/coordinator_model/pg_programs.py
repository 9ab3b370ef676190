"""Random programs of the statements that coordinators use, on several connections; the same for a fake and a real one.

What differs by nature is told by order of appearance: object ids, identifiers. Of times and of numbers of transactions
it is told that they are there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from recovery.coordinator import own_statements, table

Connecting = Callable[..., Any]

SETUP = (
    "CREATE ROLE alice LOGIN",
    "CREATE ROLE bob LOGIN",
    "CREATE SCHEMA alice AUTHORIZATION alice",
    "CREATE SCHEMA bob AUTHORIZATION bob",
    "CREATE TABLE work (n text PRIMARY KEY)",
    "CREATE TABLE checked (n text PRIMARY KEY, u text UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    table.CREATE,
)
SETUP_OF_ROLES = (("alice", table.CREATE), ("alice", "CREATE TABLE work (n text PRIMARY KEY)"), ("bob", table.CREATE))
LEVELS = ("read committed", "repeatable read")
GIDS = [("4_eA==_YQ==", psycopg.Xid.from_parts(4, "x", "a")), ("4_eQ==_YQ==", psycopg.Xid.from_parts(4, "y", "a"))]
_DURABLE = own_statements.DURABLE
_TICKET = own_statements.TICKET.decode()
_FIND = " ".join(table._FIND.split())


class Step(NamedTuple):
    """``what`` is done on connection ``on``, with these arguments."""

    on: int
    what: str
    given: tuple[Any, ...] = ()


def draw(seed: int, length: int = 30) -> list[Step]:
    """A program."""
    chance = random.Random(seed)
    levels = ("serializable",) if chance.random() < 0.15 else LEVELS
    count = 1 if levels == ("serializable",) else 3
    steps = [_connect(chance, on, levels) for on in range(count)]
    for _ in range(length):
        on = chance.randrange(count)
        if chance.random() < 0.04:
            steps += [Step(on, "close"), _connect(chance, on, levels)]
        elif chance.random() < 0.15:
            steps.append(Step(on, chance.choice(("rollback", "rollback", "commit"))))
        elif chance.random() < 0.35:
            steps.append(_transactional(chance, on))
        else:
            steps.append(Step(on, "execute", _statement(chance)))
    return steps


def draw_with_crashes(seed: int, length: int = 24, crashes: int = 2) -> list[Step]:
    """A program in which the server crashes, and in the end everything is looked at, settled, and looked at again.

    No commit in it may be lost: when what is not synced comes to the disk, is not known. Nor when temporary tables of
    sessions that a crash has ended are gone.
    """
    chance = random.Random(f"crashes {seed}")
    steps: list[Step] = []
    for part in range(crashes + 1):
        steps += [_certain(each) for each in draw(chance.randrange(1 << 30), length)]
        used = sorted({each.on for each in steps})
        if part < crashes:
            for on in used:
                steps += _work_left(chance, on)
            steps.append(Step(0, "crash"))
            steps += [_transactional(chance, on) for on in used if chance.random() < 0.7]
            steps += [Step(on, "execute", _statement(chance)) for on in used if chance.random() < 0.3]
        steps += [Step(on, "close") for on in used]
    steps.append(Step(0, "connect", ("owner", "-c lock_timeout=20ms", True, "bank")))
    settle = [Step(0, "execute", (f"{chance.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{gid}'",)) for gid, _ in GIDS]
    return [*steps, *_LOOKS, *_LOCKS, *settle, *_LOOKS]


def _work_left(chance: random.Random, on: int) -> list[Step]:
    """A transaction that the crash finds open, prepared, or committed."""
    table, gid = chance.choice(("work", "alice.work")), chance.choice(GIDS)[0]
    begun = [Step(on, "rollback"), Step(on, "execute", (f"INSERT INTO {table} VALUES ('{chance.randrange(3)}')",))]
    ends = ([], [], [Step(on, "execute", (f"PREPARE TRANSACTION '{gid}'",))], [Step(on, "commit")])
    return begun + chance.choice(ends)


_LOCKS = [
    Step(0, "execute", (f"INSERT INTO {table} VALUES ('{n}')",)) for table in ("work", "alice.work") for n in range(3)
]
_LOOKS = [
    *(Step(0, "execute", (f"SELECT n FROM {each}",)) for each in ("work", "alice.work", "checked", "ledger")),
    *(
        Step(0, "execute", (f"SELECT name, committed, extract(epoch FROM at), resource, branch FROM {each}",))
        for each in ("txha_decisions", "alice.txha_decisions", "bob.txha_decisions")
    ),
    Step(0, "execute", ("SELECT gid, prepared, owner, database FROM pg_prepared_xacts",)),
    Step(0, "execute", ("status of a number",)),
]


def _certain(step: Step) -> Step:
    """The same, but for what is not known of it behind a crash."""
    query = str(step.given[0]) if step.what == "execute" else ""
    if query.endswith("synchronous_commit = off"):
        return step._replace(given=(query.replace("= off", "= on"),))
    return Step(step.on, "rollback") if "TEMP TABLE" in query else step


def _connect(chance: random.Random, on: int, levels: tuple[str, ...]) -> Step:
    level = chance.choice(levels).replace(" ", "\\ ")
    options = [f"-c lock_timeout={chance.choice(('20ms', '30ms'))}", f"-c default_transaction_isolation={level}"]
    if chance.random() < 0.3:
        options.append(f"-c search_path={chance.choice(('alice', 'bob', 'public', 'nowhere'))}")
    user = chance.choice(("owner", "owner", "alice", "bob"))
    database = chance.choice(("bank", "bank", "other"))
    return Step(on, "connect", (user, " ".join(options), chance.random() < 0.25, database))


def _transactional(chance: random.Random, on: int) -> Step:
    _, xid = chance.choice(GIDS)
    name = chance.choice(("commit", *("tpc_begin", "tpc_prepare", "tpc_commit") * 2, "tpc_rollback", "tpc_recover"))
    with_xid = name == "tpc_begin" or (name in ("tpc_commit", "tpc_rollback") and chance.random() < 0.6)
    return Step(on, name, (xid,) if with_xid else ())


def _statement(chance: random.Random) -> tuple[Any, ...]:
    name, value = chance.choice("abc"), f"{chance.randrange(3)}"
    decisions = chance.choice(("txha_decisions", "txha_decisions", "alice.txha_decisions", "bob.txha_decisions"))
    work = chance.choice(("work", "work", "alice.work"))
    gid = chance.choice(GIDS)[0]
    settings = table._SETTINGS.format(seconds=chance.choice((1, 2)), durable=_DURABLE).replace("'1s'", "'20ms'")
    settings = settings.replace("'2s'", "'30ms'")
    insert = f"INSERT INTO {decisions} (name, committed, resource, branch) VALUES (%s, %s, %s, %s)"
    choices: list[tuple[Any, ...]] = [
        (f"INSERT INTO {work} VALUES ('{value}')",),
        (f"INSERT INTO {work} VALUES ('{value}')",),
        (f"INSERT INTO checked VALUES ('{value}', '{name}')",),
        (f"DELETE FROM {work} WHERE n = '{value}'",),
        (f"DELETE FROM {work} WHERE n = %s", (value,)),
        (f"SELECT n FROM {work}",),
        ("SELECT count(*) FROM work",),
        (insert, (name, True, "r", "b")),
        (f"{settings}{insert} ON CONFLICT DO NOTHING", (name, False, None, None)),
        (table._REMOVE.replace("{table}", decisions), ([name],)),
        (f"DELETE FROM {decisions} WHERE name = %s AND committed", (name,)),
        (f"{settings}DELETE FROM {decisions} WHERE NOT committed AND at < now() - make_interval(secs => %s)", (99,)),
        (f"SELECT name, committed, extract(epoch FROM at), resource, branch FROM {decisions} WHERE committed",),
        (f"SELECT name, committed, extract(epoch FROM at), resource, branch FROM {decisions} WHERE name = %s", (name,)),
        (_DURABLE,),
        ("SHOW synchronous_commit",),
        ("SHOW search_path",),
        ("SHOW transaction isolation level",),
        (f"SET TRANSACTION ISOLATION LEVEL {chance.choice(LEVELS).upper()}",),
        (f"SET {chance.choice(('', 'LOCAL '))}synchronous_commit = {chance.choice(('on', 'off', 'local'))}",),
        (f"SET {chance.choice(('', 'LOCAL '))}search_path = {chance.choice(('alice', 'bob', 'public'))}",),
        *_about_the_transaction(chance, name),
        ("SELECT system_identifier, current_database() FROM pg_control_system()",),
        ("SELECT current_database()",),
        ("SELECT gid, prepared, owner, database FROM pg_prepared_xacts",),
        (f"PREPARE TRANSACTION '{gid}'",),
        (f"{chance.choice(('COMMIT', 'ROLLBACK'))} PREPARED '{gid}'",),
        (f"SAVEPOINT {name}",),
        (f"RELEASE SAVEPOINT {name}",),
        (f"ROLLBACK TO SAVEPOINT {name}",),
        (_FIND, (chance.choice(("txha_decisions", "alice.txha_decisions", "nothing", "temporary")),)),
        (table.CREATE,),
        ("select current_schema()",),
        ("status of a number",),
        ("SELECT pg_xact_status(%s::xid8)", ("4000000000",)),
    ]
    rare: list[tuple[Any, ...]] = [
        ("CREATE TEMP TABLE temporary (n text)",),
        ("INSERT INTO temporary VALUES ('1')",),
        ("INSERT INTO ledger VALUES ('1')",),
        ("SELECT n FROM ledger",),
        ("LISTEN channel",),
        ("SELECT pg_notify('channel', 'hello')",),
        (f"DECLARE cursor_{chance.randrange(1 << 30)} CURSOR WITH HOLD FOR SELECT 1",),
    ]
    return chance.choice(rare) if chance.random() < 0.06 else chance.choice(choices)


def _about_the_transaction(chance: random.Random, name: str) -> list[tuple[Any, ...]]:
    return [
        (_TICKET,),
        (_TICKET,),
        (own_statements._NUMBER.decode(),),
        (own_statements.BEGAN.decode(),),
        (own_statements.MARK.decode(), (name,)),
        (own_statements.ROLE.decode(),),
        (own_statements.COMMIT_MARKED.decode(), (name,)),
        (chance.choice(("COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT", "ROLLBACK")),),
    ]


ENDING = ("commit", "tpc_prepare", "tpc_commit", "PREPARE TRANSACTION")
"""Steps behind which a transaction with a number is on the disk."""


class Runner:
    """Carries programs out, and says what came of each step. ``crash``: the server is there again behind it."""

    def __init__(self, connect: Connecting, dsn: str, crash: Callable[[], None] | None = None) -> None:
        self._connect = connect
        self._dsn = dsn
        self._crash = crash
        self._before_crash: set[int] = set()
        self._open_tickets: dict[int, str] = {}
        self._durable_tickets: list[str] = []
        self._connections: dict[int, Any] = {}
        self._tickets: list[str] = []
        self._seen: dict[Any, str] = {}

    def run(self, steps: list[Step]) -> list[str]:
        """What came of the steps."""
        try:
            return [self._told(step) for step in steps]
        finally:
            for each in self._connections.values():
                each.close()

    def _told(self, step: Step) -> str:
        try:
            told = self._do(step)
        except psycopg.Error as error:
            is_lost = isinstance(error, psycopg.OperationalError) and step.on in self._before_crash
            told = "lost" if is_lost else f"{error.sqlstate or type(error).__name__}"
        connection = self._connections[step.on]
        return f"{told} | {connection.info.transaction_status.name}{' closed' * connection.closed}"

    def _do(self, step: Step) -> str:
        if step.what == "connect":
            user, options, autocommit, database = step.given
            dsn = make_conninfo(self._dsn, user=user, options=options, dbname=database)
            self._connections[step.on] = self._connect(dsn, autocommit=autocommit, prepare_threshold=None)
            self._before_crash.discard(step.on)
            self._open_tickets.pop(step.on, None)
            return "connected"
        if step.what == "crash":
            self._crash_all()
            return "crashed"
        connection = self._connections[step.on]
        told = self._do_on(connection, step)
        if step.what in ENDING or told.startswith(ENDING):
            self._durable_tickets += [self._open_tickets.pop(step.on)] if step.on in self._open_tickets else []
        if connection.info.transaction_status == TransactionStatus.IDLE:
            self._open_tickets.pop(step.on, None)
        return told

    def _crash_all(self) -> None:
        """Numbers of transactions that were not on the disk may be given to others then."""
        assert self._crash is not None
        self._crash()
        self._before_crash = set(self._connections)
        self._open_tickets.clear()
        self._tickets = list(self._durable_tickets)

    def _do_on(self, connection: Any, step: Step) -> str:
        if step.what != "execute":
            found = getattr(connection, step.what)(*step.given)
            listed = sorted((str(each), each.owner, each.database) for each in found or [])
            return f"done {listed}"
        query, *values = step.given
        if query == "status of a number":
            query, values = "SELECT pg_xact_status(%s::xid8)", [(self._tickets[-1] if self._tickets else "3",)]
        of_ours = ";" in query or "txha.branch" in query
        cursor = psycopg.ClientCursor(connection) if of_ours else connection.cursor()
        cursor.execute(query.encode(), *values)
        while cursor.nextset():
            continue
        rows = cursor.fetchall() if cursor.description is not None else None
        if rows and "if_assigned" in query and rows[0][0]:
            self._tickets.append(rows[0][0])
            self._open_tickets[step.on] = rows[0][0]
        changed = query.startswith(("INSERT", "DELETE")) or ";" in query
        return f"{cursor.statusmessage} {self._known(query, rows)} {cursor.rowcount if changed else ''}"

    def _known(self, query: str, rows: list[tuple[Any, ...]] | None) -> Any:
        if rows is None:
            return "no rows"
        if "if_assigned" in query:
            return [(ticket is not None, *(self._value(query, each) for each in more)) for ticket, *more in rows]
        return sorted(str(tuple(self._value(query, each) for each in row)) for row in rows)

    def _value(self, query: str, value: Any) -> Any:
        if isinstance(value, float):
            return "an age"
        if "transaction_timestamp" in query:
            return self._seen.setdefault(("began", value), f"time {len(self._seen)}")
        if isinstance(value, Decimal) or hasattr(value, "year") or (value is None and "gid" in query):
            return "a time"
        if ("to_hex" in query or "system_identifier" in query) and str(value) not in ("bank", "other"):
            if (isinstance(value, int) and value < 10) or str(value) in "ptu" or "." in str(value):
                return value
            return self._seen.setdefault(value, f"number {len(self._seen)}")
        return value
