"""Asking a node over its administration port: the operator's side, blocking and with a short patience.

The node's side is ``broker_plugin.admin.server``.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

FILE = "admin.json"
"""In the node's directory while it runs: port on loopback, and token."""


class AdminError(Exception):
    """The node does not answer, or refuses; one sentence says why."""


def ask(directory: Path, command: str, arguments: dict[str, Any] | None = None, timeout: float = 2.0) -> Any:
    """The node's answer to a command. ``directory`` is the node's; ``timeout`` in seconds. Raises AdminError."""
    name = directory.name
    try:
        answer = _exchange(directory, command, arguments or {}, timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        raise AdminError(f"{name} does not run") from None
    except TimeoutError:
        raise AdminError(f"{name} does not answer within {timeout:g} s") from None
    except RecursionError:
        raise AdminError(f"{name} gave an answer that is nested too deep") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AdminError(f"{name} does not answer: {error}") from error
    if not isinstance(answer, dict) or "ok" not in answer:
        raise AdminError(f"{name} gave no answer")
    if not answer["ok"]:
        raise AdminError(str(answer.get("error")))
    return answer.get("result")


def _exchange(directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
    where = json.loads((directory / FILE).read_text())
    request = {"token": where["token"], "command": command, "arguments": arguments}
    with socket.create_connection(("127.0.0.1", where["port"]), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as stream:
            return json.loads(stream.readline() or b"{}")
