"""``peer.tls`` of a node's configuration: whether links are encrypted, and what must be given with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from broker_plugin.node.sources import ENVIRONMENT, LEVELS

KEY = "peer.tls"
_WORDS = {"true": True, "false": False}


def _mode(given: object) -> object:
    return _WORDS.get(given.lower(), given) if isinstance(given, str) else given


def _checked(given: object) -> object:
    mode = _mode(given)
    if not isinstance(mode, bool) and mode != "accept":
        raise ValueError('must be true, false or "accept"')
    return mode


PeerTls = Annotated[Literal[False, "accept", True], BeforeValidator(_checked)]
"""False: links are in clear; True: over TLS, all of them; ``accept``: in clear, and over TLS where the peer wants it"""


def stands_in_for_the_secret(
    file: Mapping[str, Any], environment: Mapping[str, str], options: Mapping[str, str]
) -> bool:
    """Whether the sources of a configuration say that all links are over TLS; then there is no default secret."""
    given: Any = None
    if isinstance(peer := file.get("peer"), dict):
        given = peer.get("tls")
    names = {name.upper(): value for name, value in environment.items()}
    try:
        table = json.loads(names.get(f"{ENVIRONMENT}PEER", "{}"))
    except ValueError:
        table = {}
    if isinstance(table, dict):
        given = table.get("tls", given)
    given = names.get(f"{ENVIRONMENT}PEER{LEVELS}TLS", given)
    return _mode(options.get(KEY, given)) is True
