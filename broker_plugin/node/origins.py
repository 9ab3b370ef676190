"""Whose change it is that a command of the administration asks for."""

from __future__ import annotations

from typing import Any

from broker_plugin.admin.server import CommandRefused
from broker_plugin.node.shell import wall_ms
from txobserver.audited import LONGEST_ORIGIN, Origin


def origin_of(arguments: dict[str, Any], node: str) -> Origin:
    """``by`` in the arguments is a user who has logged in, and an address; without it the operator is at the machine.

    Raises CommandRefused.
    """
    by = arguments.get("by", {"user": "", "address": ""})
    if not isinstance(by, dict) or set(by) != {"user", "address"}:
        raise CommandRefused("by says user and address")
    user, address = by["user"], by["address"]
    if not all(isinstance(each, str) and len(each.encode()) <= LONGEST_ORIGIN for each in (user, address)):
        raise CommandRefused(f"user and address are texts of at most {LONGEST_ORIGIN} bytes")
    return Origin(user, address, node, wall_ms())
