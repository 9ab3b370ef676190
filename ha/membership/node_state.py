"""The states of a node as a table (PROTOCOL, "Words")."""

from __future__ import annotations

from txobserver.table import Table

STANDALONE, JOINING, CATCHUP, READY, RECOVERING, ACTIVE = (
    "standalone",
    "joining",
    "catchup",
    "ready",
    "recovering",
    "active",
)

NODE_TABLE: Table[str, str] = Table(
    "node",
    STANDALONE,
    {
        (STANDALONE, "record read"): JOINING,
        (JOINING, "attached"): CATCHUP,
        (CATCHUP, "granted"): READY,
        (CATCHUP, "detached"): JOINING,
        (READY, "detached"): JOINING,
        (JOINING, "promoted"): RECOVERING,
        (CATCHUP, "promoted"): RECOVERING,
        (READY, "promoted"): RECOVERING,
        (RECOVERING, "in step"): ACTIVE,
        (RECOVERING, "stepped down"): JOINING,
        (ACTIVE, "stepped down"): JOINING,
    },
)
