"""Servers that tests start: PostgreSQL, pgbouncer."""
