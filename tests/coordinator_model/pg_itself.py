"""What the fake PostgreSQL says of itself, and of the transaction in which it is asked."""

from __future__ import annotations

from typing import Any

from tests.coordinator_model.pg_heap import fails
from tests.coordinator_model.pg_session import Answer
from tests.coordinator_model.pg_statements import Match, Statement, known, one_row


@known(
    r"SELECT pg_current_xact_id_if_assigned\(\)::text, pg_is_in_recovery\(\), current_setting\('txha\.branch', true\), "
    r"current_setting\('role'\)"
)
def _ticket(to: Statement, match: Match) -> Answer:
    xid, mark = to.session.query().xid, to.session.settings.custom("txha.branch")
    columns = "pg_current_xact_id_if_assigned pg_is_in_recovery current_setting current_setting"
    return one_row(columns, str(xid or "") or None, False, mark, to.session.settings.get("role"))


_START = r"\(extract\(epoch FROM transaction_timestamp\(\)\) \* 1000000\)::bigint"


@known(rf"SELECT {_START}")
def _began(to: Statement, match: Match) -> Answer:
    return one_row("int8", to.session.query().began)


@known(
    rf"SELECT pg_current_xact_id_if_assigned\(\)::text, {_START}, "
    r"extract\(epoch FROM clock_timestamp\(\) - transaction_timestamp\(\)\)::float8"
)
def _number(to: Statement, match: Match) -> Answer:
    tx = to.session.query()
    age = float(to.session.server.surroundings.now() - tx.at)
    return one_row("pg_current_xact_id_if_assigned int8 float8", str(tx.xid or "") or None, tx.began, age)


@known(r"SELECT 1 / \(coalesce\(current_setting\('txha\.branch', true\), ''\) = «V»\)::int")
def _still(to: Statement, match: Match) -> Answer:
    to.session.query()
    if (to.session.settings.custom("txha.branch") or "") != to.value(match[1]):
        raise fails("22012", "division by zero")
    return one_row("?column?", 1)


@known(r"SELECT system_identifier, current_database\(\) FROM pg_control_system\(\)")
def _identity(to: Statement, match: Match) -> Answer:
    to.session.query()
    return one_row("system_identifier current_database", to.session.server.identifier, to.session.database.name)


@known(r"SELECT current_database\(\)")
def _database(to: Statement, match: Match) -> Answer:
    to.session.query()
    return one_row("current_database", to.session.database.name)


@known(r"SELECT pg_xact_status\(«V»::xid8\)")
def _status(to: Statement, match: Match) -> Answer:
    to.session.query()
    xid, server = int(to.value(match[1])), to.session.server
    if xid >= server.next_xid:
        raise fails("22023", f"transaction ID {xid} is in the future")
    return one_row("pg_xact_status", server.status.get(xid))


@known(r"SELECT gid, prepared, owner, database FROM pg_prepared_xacts")
def _prepared(to: Statement, match: Match) -> Answer:
    to.session.query()
    found = to.session.server.prepared.values()
    rows: list[tuple[Any, ...]] = [(each.gid, None, each.owner, each.database) for each in found]
    return Answer(("gid", "prepared", "owner", "database"), rows, len(rows), f"SELECT {len(rows)}")


@known(
    r"SELECT to_hex\(system_identifier\), database\.oid, found\.oid, format\('%I\.%I', nspname, relname\), "
    r"relpersistence, \(SELECT count\(\*\) FROM pg_class AS every WHERE every\.relname = found\.relname "
    r"AND every\.relkind IN \('r', 'p'\)\) FROM pg_control_system\(\), pg_database AS database, pg_class AS found "
    r"JOIN pg_namespace ON relnamespace = pg_namespace\.oid "
    r"WHERE datname = current_database\(\) AND found\.oid = to_regclass\(«V»\)"
)
def _find(to: Statement, match: Match) -> Answer:
    session = to.session
    session.query()
    columns = ("to_hex", "oid", "oid", "format", "relpersistence", "count")
    found = session.names.find(to.value(match[1]))
    if found is None:
        return Answer(columns, [], 0, "SELECT 0")
    every = [session.names.seen(each, found.name) for each in session.database.schemas.values()]
    count = sum(each is not None for each in every) + (found.name in session.names.temporary)
    identifier = f"{session.server.identifier:x}"
    row = (identifier, session.database.oid, found.oid, f"{found.schema}.{found.name}", found.persistence, count)
    return Answer(columns, [row], 1, "SELECT 1")


@known(r"select pg_catalog\.version\(\)")
def _version(to: Statement, match: Match) -> Answer:
    to.session.query()
    return one_row("version", "PostgreSQL 15.9 (a fake) on nothing")


@known(r"select current_schema\(\)")
def _schema(to: Statement, match: Match) -> Answer:
    to.session.query()
    return one_row("current_schema", next((name for name, _ in to.session.names.schemas), None))


@known(r"SELECT 1")
def _select_1(to: Statement, match: Match) -> Answer:
    to.session.query()
    return one_row("?column?", 1)
