"""Asking a node over its administration port: the operator's side, blocking and with a short patience.

The node's side is ``broker_plugin.admin.server``.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

FILE = "admin.json"
"""In the node's directory while it runs: port on loopback, and token."""

PROVE = "admin.prove"
"""The command that only shows the token, and answers ``longest_line``"""
MAX_LINE = 1 << 20
"""Bytes of a line with a request, its end among them, of one who has not shown the token before"""
LONGEST_LINE = 8 << 20
"""Of one who has; a longer request is not sent"""
MAX_ANSWER = 256 << 20
"""Bytes of an answer: the greatest is a list of branches"""
MOMENT = 0.001
"""Seconds: a socket with a timeout of 0 does not wait at all"""


class AdminError(Exception):
    """The node does not answer, or refuses; one sentence says why."""


class NotRunning(AdminError):
    """The node does not run: nothing listens at its port, or it has never said at which."""


class AnswerLost(AdminError):
    """The node may have been asked, and gave no answer: what it was to do may be done."""


class RequestTooLong(AdminError):
    """The node was not asked: it would not have read the request to its end."""


def ask(directory: Path, command: str, arguments: dict[str, Any] | None = None, timeout: float = 2.0) -> Any:
    """The node's answer to a command. ``directory`` is the node's; ``timeout`` in seconds.

    Raises AdminError: NotRunning, or AnswerLost where the node may have been asked.
    """
    name = directory.name
    try:
        answer = _exchange(directory, command, arguments or {}, timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning(f"{name} does not run") from None
    except TimeoutError:
        raise AnswerLost(f"{name} does not answer within {timeout:g} s") from None
    except RecursionError:
        raise AnswerLost(f"{name} gave an answer that is nested too deep") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AnswerLost(f"{name} does not answer: {error}") from error
    if not isinstance(answer, dict) or "ok" not in answer:
        raise AnswerLost(f"{name} gave no answer")
    if not answer["ok"]:
        raise AdminError(str(answer.get("error")))
    return answer.get("result")


def request_lines(token: str, command: str, arguments: dict[str, Any]) -> tuple[bytes, bytes]:
    """The line of a request, and before it the one that must be answered first: that only shows the token, where the
    request is long; else it is empty. Raises RequestTooLong."""
    request = _request(token, command, arguments)
    if len(request) > LONGEST_LINE:
        raise RequestTooLong(f"the request comes to {len(request)} bytes; {LONGEST_LINE} at most may be: split it")
    return b"" if len(request) <= MAX_LINE else _request(token, PROVE, {}), request


def _request(token: str, command: str, arguments: dict[str, Any]) -> bytes:
    return json.dumps({"token": token, "command": command, "arguments": arguments}).encode() + b"\n"


def _exchange(directory: Path, command: str, arguments: dict[str, Any], timeout: float) -> Any:
    where = json.loads((directory / FILE).read_text())
    proof, request = request_lines(where["token"], command, arguments)
    deadline = time.monotonic() + timeout
    with socket.create_connection(("127.0.0.1", where["port"]), timeout) as connection:
        if proof:
            connection.sendall(proof)
            answer = json.loads(_line(connection, deadline) or b"{}")
            if not isinstance(answer, dict) or not answer.get("ok"):
                return answer
        connection.sendall(request)
        return json.loads(_line(connection, deadline) or b"{}")


def _line(connection: socket.socket, deadline: float) -> bytes:
    """What comes until the end of a line, or of the connection. Raises TimeoutError, ValueError.

    A node that was killed leaves its file behind: any process may listen at that port by now, and say anything.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(MOMENT, deadline - time.monotonic()))
        if not (data := connection.recv(1 << 16)):
            break
        line += data
        if len(line) > MAX_ANSWER:
            raise ValueError(f"its answer is longer than {MAX_ANSWER} bytes")
    return bytes(line)
