"""A file of definitions, as steps in the order in which they depend on each other, and what cannot be honoured here.

What cannot be honoured is told by where it stands and why; who imports decides whether the rest is wanted without it.
What leads to something that is left out is left out as well. What is no file at all raises ``MalformedDocument``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker_plugin.definitions.access_entries import AccessEntries
from broker_plugin.definitions.document import Document, MalformedDocument, VhostEntry
from broker_plugin.definitions.found import ImportFound
from broker_plugin.definitions.state import DefinitionsHeld
from broker_plugin.definitions.topology_entries import TopologyEntries
from txobserver.batch import check_asked, load_step
from txobserver.rules import Vhost

OF_THE_CLUSTER = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")
"""Sections that no file of one virtual host has"""


def read_import(document: Document, state: DefinitionsHeld, vhost: str | None = None) -> ImportFound:
    """The steps, and what is left out. ``vhost``: the one that a file of one virtual host is for.

    Raises MalformedDocument.
    """
    there = {rule.name for rule in state.rules if isinstance(rule.value, Vhost) and not rule.value.going}
    _check_scope(document, vhost, there)
    found = ImportFound()
    access, topology = AccessEntries(found, state), TopologyEntries(found, state)
    access.users(document.users)
    there |= access.vhosts(document.vhosts)
    sections: list[tuple[str, Sequence[VhostEntry], Callable[[Any, str], None]]] = [
        ("permission", document.permissions, access.permission),
        ("topic permission", document.topic_permissions, access.topic_permission),
        ("parameter", document.parameters, access.parameter),
        ("policy", document.policies, access.policy),
        ("exchange", document.exchanges, topology.exchange),
        ("queue", document.queues, topology.queue),
        ("binding", document.bindings, topology.binding),
    ]
    access.global_parameters(document.global_parameters)
    for section, entries, take in sections:
        for entry in entries:
            name = entry.vhost if vhost is None else vhost
            if name in there:
                take(entry, name)
            else:
                found.leave_out(f"{section} in virtual host {name!r}", "there is no such virtual host")
    try:
        check_asked(load_step(found.steps))
    except ValueError as error:
        raise MalformedDocument(str(error)) from None
    return found


def _check_scope(document: Document, vhost: str | None, there: set[str]) -> None:
    """Raises MalformedDocument."""
    sections = (getattr(document, name) for name in type(document).model_fields)
    scoped = [entry for section in sections if isinstance(section, list) for entry in section]
    said = {entry.vhost for entry in scoped if isinstance(entry, VhostEntry)}
    if vhost is None:
        if "" in said:
            raise MalformedDocument("it is of one virtual host and does not say which: give the virtual host")
        return
    if vhost not in there:
        raise MalformedDocument(f"there is no virtual host {vhost!r}: add it first")
    if wide := [name for name in OF_THE_CLUSTER if getattr(document, name)]:
        raise MalformedDocument(f"it has {wide[0]}, so it is the file of a cluster: import it without a virtual host")
    if others := sorted(said - {"", vhost}):
        raise MalformedDocument(f"it has something in virtual host {others[0]!r}: import it without a virtual host")
