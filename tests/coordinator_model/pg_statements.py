"""The statements that the fake PostgreSQL knows: those of the product, and those of the tester's applications.

Whatever else comes is a mistake of the tester's, and says so: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tests.coordinator_model.pg_heap import Row, Table, fails
from tests.coordinator_model.pg_server import DECISIONS, Schema
from tests.coordinator_model.pg_session import Answer, Session

Match = re.Match[str]
_VALUE = r"(\$\d+|'(?:[^']|'')*'|-?\d+|NULL|true|false)"
_NAME = r'((?:"?\w+"?\.)?"?\w+"?)'
_PLACE = re.compile(r"%s|%\((\w+)\)s|%%")


class Unknown(BaseException):
    """A statement that the fake does not know."""


class Statement:
    """One statement with its values, for one session."""

    def __init__(self, session: Session, values: Sequence[Any]) -> None:
        self.session = session
        self._values = values

    def value(self, text: str) -> Any:
        """A literal, or one of the values."""
        if text.startswith("$"):
            return self._values[int(text[1:])]
        if text.startswith("'"):
            return text[1:-1].replace("''", "'")
        return {"NULL": None, "true": True, "false": False}.get(text, int(text) if text.lstrip("-").isdigit() else None)


Handler = Callable[[Statement, Match], Answer]
_KNOWN: list[tuple[re.Pattern[str], Handler]] = []


def known(pattern: str) -> Callable[[Handler], Handler]:
    """Register what carries a statement out. Blanks stand for any white space, V for a value, T for a name."""
    text = pattern.replace("«V»", _VALUE).replace("«T»", _NAME)

    def register(handler: Handler) -> Handler:
        _KNOWN.append((re.compile(text, re.IGNORECASE), handler))
        return handler

    return register


def parse(session: Session, text: str, values: Any = None) -> list[Callable[[], Answer]]:
    """The statements of one message, to be carried out in turn. Raises Unknown."""
    bound: list[Any] = []

    def place(found: Match) -> str:
        if found[0] == "%%":
            return "%"
        bound.append(values[found[1]] if found[1] else values[len(bound)])
        return f"${len(bound) - 1}"

    if values is not None and (not isinstance(values, Mapping) or values):
        text = _PLACE.sub(place, text)
    parts = [" ".join(each.split()) for each in text.split(";")]
    return [_one(Statement(session, bound), part) for part in parts if part]


def _one(statement: Statement, text: str) -> Callable[[], Answer]:
    for pattern, handler in _KNOWN:
        match = pattern.fullmatch(text)
        if match is not None:
            return lambda handler=handler, match=match: handler(statement, match)  # type: ignore[misc]
    raise Unknown(f"the fake PostgreSQL does not know: {text}")


def one_row(columns: str, *row: Any) -> Answer:
    """The answer of a query that gives one row; names of columns have blanks between them."""
    return Answer(tuple(columns.split()), [row], 1, "SELECT 1")


# -- transactions


@known(r"BEGIN(?: TRANSACTION)?(?: ISOLATION LEVEL (.*))?")
def _begin(to: Statement, match: Match) -> Answer:
    return to.session.begin((match[1] or "").lower())


@known(r"(COMMIT|ROLLBACK)( AND CHAIN)?")
def _end(to: Statement, match: Match) -> Answer:
    return to.session.finish(match[1].upper() == "COMMIT", bool(match[2]))


@known(r"PREPARE TRANSACTION «V»")
def _prepare(to: Statement, match: Match) -> Answer:
    return to.session.prepare(to.value(match[1]))


@known(r"(COMMIT|ROLLBACK) PREPARED «V»")
def _settle(to: Statement, match: Match) -> Answer:
    return to.session.settle(to.value(match[2]), match[1].upper() == "COMMIT")


@known(r"(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT) (\w+)")
def _savepoint(to: Statement, match: Match) -> Answer:
    session = to.session
    of = session.savepoints
    does = {"SAVEPOINT": of.savepoint, "RELEASE SAVEPOINT": of.release}.get(match[1].upper(), of.back_to)
    return does(match[2])


# -- settings


@known(r"SET TRANSACTION ISOLATION LEVEL (READ COMMITTED|REPEATABLE READ|SERIALIZABLE)")
def _set_isolation(to: Statement, match: Match) -> Answer:
    tx = to.session.transaction()
    if (tx.snapshot is not None or to.session.savepoints.marks) and tx.isolation != match[1].lower():
        raise fails("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query")
    tx.isolation = match[1].lower()
    return Answer(told="SET")


@known(r"SET (LOCAL )?([\w.]+) (?:=|TO) (.*)")
def _set(to: Statement, match: Match) -> Answer:
    to.session.transaction()
    value = to.value(match[3]) if match[3].startswith("$") else match[3].strip("'")
    to.session.settings.set(match[2], value, bool(match[1]))
    return Answer(told="SET")


@known(r"SHOW (.*)")
def _show(to: Statement, match: Match) -> Answer:
    tx = to.session.transaction()
    name = match[1].lower()
    value = tx.isolation if name == "transaction isolation level" else to.session.settings.get(name)
    return Answer((name.replace(" ", "_"),), [(value,)], 1, "SHOW")


@known(r"SELECT set_config\(«V», «V», true\) WHERE current_setting\(«V»\) = «V»")
def _set_config(to: Statement, match: Match) -> Answer:
    to.session.query()
    name, value, condition, wanted = (to.value(match[number]) for number in range(1, 5))
    if to.session.settings.get(condition) != wanted:
        return Answer(("set_config",), [], 0, "SELECT 0")
    to.session.settings.set(name, value, local=True)
    return one_row("set_config", value)


@known(r"ALTER DATABASE (\w+) SET (\w+) = «V»")
def _alter(to: Statement, match: Match) -> Answer:
    to.session.query().assign()
    to.session.server.databases[match[1]].settings[match[2]] = to.value(match[3])
    return Answer(told="ALTER DATABASE")


# -- what is made


def _make(
    to: Statement, name: str, columns: tuple[str, ...], if_not_there: bool = False, **options: Any
) -> Answer:
    session = to.session
    session.query()
    if not session.names.schemas:
        raise fails("3F000", "no schema has been selected to create in")
    schema_name, schema = session.names.schemas[0]
    if session.user not in ("owner", schema.owner):
        raise fails("42501", f"permission denied for schema {schema_name}")
    session.wait_for_maker(schema, name)
    if name in schema.tables and if_not_there:
        return Answer(told="CREATE TABLE")
    if name in schema.tables:
        raise fails("42P07", f'relation "{name}" already exists')
    tx = session.query()
    tx.assign()
    made = Table(session.server.new_oid(), schema_name, name, session.user, columns, maker=tx, **options)
    schema.tables[name] = made
    tx.undo.append(lambda: schema.tables.pop(name))
    return Answer(told="CREATE TABLE")


@known(
    r"CREATE (UNLOGGED )?TABLE IF NOT EXISTS (\w+) \( name text PRIMARY KEY, committed boolean NOT NULL, "
    r"resource text, branch text, at timestamptz NOT NULL DEFAULT now\(\) \)"
)
def _make_decisions(to: Statement, match: Match) -> Answer:
    return _make(to, match[2], DECISIONS, True, key="name", persistence="u" if match[1] else "p")


@known(r"CREATE TABLE (\w+) \(n text PRIMARY KEY(, u text UNIQUE DEFERRABLE INITIALLY DEFERRED)?\)")
def _make_table(to: Statement, match: Match) -> Answer:
    if match[2]:
        return _make(to, match[1], ("n", "u"), key="n", late="u")
    return _make(to, match[1], ("n",), key="n")


@known(r"CREATE TEMP TABLE (\w+) \(n text\)")
def _make_temporary(to: Statement, match: Match) -> Answer:
    session, name = to.session, match[1]
    tx = session.query()
    tx.assign()
    if name in session.names.temporary:
        raise fails("42P07", f'relation "{name}" already exists')
    made = Table(session.server.new_oid(), "pg_temp", name, session.user, ("n",), persistence="t")
    session.names.temporary[name] = made
    tx.undo.append(lambda: session.names.temporary.pop(name))
    session.refuses_to_prepare("a transaction that has operated on temporary objects")
    return Answer(told="CREATE TABLE")


@known(r"CREATE ROLE (\w+) LOGIN")
def _make_role(to: Statement, match: Match) -> Answer:
    to.session.query().assign()
    to.session.server.roles.add(match[1])
    return Answer(told="CREATE ROLE")


@known(r"CREATE SCHEMA (\w+) AUTHORIZATION (\w+)")
def _make_schema(to: Statement, match: Match) -> Answer:
    to.session.query().assign()
    to.session.database.schemas[match[1]] = Schema(match[2])
    return Answer(told="CREATE SCHEMA")


# -- rows


@known(r"INSERT INTO «T» (?:\(([\w, ]+)\) )?VALUES \((.*?)\)( ON CONFLICT DO NOTHING)?")
def _insert(to: Statement, match: Match) -> Answer:
    tx = to.session.query()
    table = to.session.names.table(match[1])
    columns = match[2].split(", ") if match[2] else table.columns
    row: Row = dict.fromkeys(table.columns)
    if table.columns == DECISIONS:
        row["at"] = Decimal(repr(to.session.server.surroundings.now()))
    row.update(zip(columns, map(to.value, re.split(", ?", match[3])), strict=False))
    if table.foreign is not None:
        tx.snapshot_there = tx.snapshot_there or to.session.server.snapshot()
        tx.foreign.append((table.foreign, row))
        to.session.refuses_to_prepare("a transaction that has operated on postgres_fdw foreign tables")
        return Answer(count=1, told="INSERT 0 1")
    if (table.key and row[table.key] is None) or (table.columns == DECISIONS and row["committed"] is None):
        raise fails("23502", "null value violates not-null constraint")
    count = tx.insert(table, row, bool(match[4]))
    return Answer(count=count, told=f"INSERT 0 {count}")


@known(r"DELETE FROM «T» WHERE (.*)")
def _delete(to: Statement, match: Match) -> Answer:
    tx = to.session.query()
    count = tx.delete(to.session.names.table(match[1]), _condition(to, match[2]))
    return Answer(count=count, told=f"DELETE {count}")


@known(
    r"SELECT (\*|n|count\(\*\)|name, committed, extract\(epoch FROM at\), resource, branch) FROM «T»(?: WHERE (.*?))?"
    r"(?: ORDER BY n)?"
)
def _select(to: Statement, match: Match) -> Answer:
    tx = to.session.query()
    table = to.session.names.table(match[2])
    if table.foreign is not None:
        to.session.refuses_to_prepare("a transaction that has operated on postgres_fdw foreign tables")
        tx.snapshot_there = tx.snapshot_there or to.session.server.snapshot()
    wanted = _condition(to, match[3]) if match[3] else lambda row: True
    rows = [row for row in tx.select(table) if wanted(row)]
    if match[1].startswith("count"):
        return one_row("count", len(rows))
    columns = {"n": ("n",), "*": table.columns}.get(match[1], ("name", "committed", "at", "resource", "branch"))
    found = [tuple(row[each] for each in columns) for row in rows]
    return Answer(columns, sorted(found, key=repr), len(found), f"SELECT {len(found)}")


def _condition(to: Statement, text: str) -> Callable[[Row], bool]:
    """What stands behind WHERE. Raises Unknown."""
    if match := re.fullmatch(
        rf"(\w+) = ANY\({_VALUE}\) AND current_setting\('transaction_isolation'\) = {_VALUE}", text
    ):
        several = to.value(match[2]) if to.session.transaction().isolation == to.value(match[3]) else ()
        return lambda row: row[match[1]] in several
    if match := re.fullmatch(rf"(\w+) = {_VALUE}( AND committed)?", text):
        value, decided = to.value(match[2]), bool(match[3])
        return lambda row: row[match[1]] == value and (not decided or row["committed"])
    if match := re.fullmatch(rf"NOT committed AND at < now\(\) - make_interval\(secs => {_VALUE}\)", text):
        before = to.session.server.surroundings.now() - to.value(match[1])
        return lambda row: not row["committed"] and row["at"] < before
    if text == "committed":
        return lambda row: bool(row["committed"])
    raise Unknown(f"the fake PostgreSQL does not know the condition: {text}")


# -- what PREPARE refuses


@known(r"LISTEN (\w+)")
def _listen(to: Statement, match: Match) -> Answer:
    to.session.transaction().listens = True
    return Answer(told="LISTEN")


@known(r"SELECT pg_notify\(«V», «V»\)")
def _notify(to: Statement, match: Match) -> Answer:
    to.session.query().notifications.append((to.value(match[1]), to.value(match[2])))
    return one_row("pg_notify", "")


@known(r"DECLARE (\w+) CURSOR WITH HOLD FOR SELECT 1")
def _declare(to: Statement, match: Match) -> Answer:
    to.session.query()
    to.session.refuses_to_prepare("a transaction that has created a cursor WITH HOLD")
    return Answer(told="DECLARE CURSOR")


@known(r"SELECT pg_export_snapshot\(\)")
def _export(to: Statement, match: Match) -> Answer:
    to.session.query()
    if to.session.tx is not None and to.session.savepoints.marks:
        raise Unknown("snapshots are not exported within savepoints")
    to.session.refuses_to_prepare("a transaction that has exported snapshots")
    return one_row("pg_export_snapshot", "00000003-00000002-1")
