"""The operator's side: blocking, with a short patience."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from broker_plugin.admin.server import FILE


class AdminError(Exception):
    """The node does not answer, or refuses; one sentence says why."""


def ask(directory: Path, command: str, arguments: dict[str, Any] | None = None, timeout: float = 2.0) -> Any:
    """The node's answer to a command. ``directory`` is the node's; ``timeout`` in seconds. Raises AdminError."""
    try:
        where = json.loads((directory / FILE).read_text())
        request = {"token": where["token"], "command": command, "arguments": arguments or {}}
        with socket.create_connection(("127.0.0.1", where["port"]), timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline() or b"{}")
    except (OSError, ValueError, KeyError) as error:
        raise AdminError(f"the node in {directory} does not answer: {error}") from error
    if not answer.get("ok"):
        raise AdminError(answer.get("error") or f"the node in {directory} gave no answer")
    return answer["result"]
