"""The door as a process: started and ended by its node, which says in one line of JSON where to listen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
import uvicorn
from starlette.types import ASGIApp

from broker_plugin.coordination.coordination_process import NAME_FILE
from broker_plugin.http.app import metrics_app, operators_app
from broker_plugin.http.asking import NodeClient
from broker_plugin.http.protocol import KEEP_ALIVE_SECONDS, MOST_HEADER, BoundedProtocol
from broker_plugin.http.secured import Secured
from broker_plugin.logs.formats import set_up, tell
from broker_plugin.logs.http_events import HttpDoorListens, HttpDoorShut
from broker_plugin.logs.tls_events import CertificateUnread
from broker_plugin.tls.files import TlsError, TlsFiles
from broker_plugin.tls.told import READ

log = logging.getLogger("txha.http")
PROCESS_NAME = "txha-http"
"""What `ps` and `top` show."""
WAITING = 128
"""Connections that the operating system keeps until they are accepted."""


class DoorSettings(msgspec.Struct, forbid_unknown_fields=True):
    """What the node says. ``directory`` is the node's; ``files``: certificate, key and authority, where it has TLS."""

    node: str
    directory: str
    host: str
    port: int
    metrics_host: str
    metrics_port: int | None
    log_level: str
    log_format: Literal["text", "json"]
    tls: bool = False
    metrics_tls: bool = False
    files: list[str] = []


class DoorServer(uvicorn.Server):
    """Signals are the node's to answer: the door ends with it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


def server_of(app: ASGIApp, secured: Secured | None = None) -> DoorServer:
    """With all bounds, and no trust in headers that say where a client comes from. ``secured``: None without TLS."""
    return DoorServer(
        uvicorn.Config(
            app,
            http=BoundedProtocol if secured is None else secured,  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=WAITING,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MOST_HEADER,
        )
    )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=WAITING)


async def serve(settings: DoorSettings) -> None:
    """Until the node is gone. Raises OSError where it cannot listen, TlsError."""
    node = NodeClient(Path(settings.directory))
    secured = Secured(TlsFiles(*map(Path, settings.files))) if settings.tls or settings.metrics_tls else None
    operators = server_of(operators_app(node), secured if settings.tls else None)
    served = [(operators, listening(settings.host, settings.port))]
    if settings.metrics_port is not None:
        collector = server_of(metrics_app(node), secured if settings.metrics_tls else None)
        served.append((collector, listening(settings.metrics_host, settings.metrics_port)))
    tell(log, logging.INFO, HttpDoorListens(", ".join(_shown(each) for _, each in served)))
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _hear_the_node, secured)
    await asyncio.gather(*(server.serve([listener]) for server, listener in served))


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{host}:{port}"


def _hear_the_node(secured: Secured | None) -> None:
    """It may say that its certificates have changed. When it says nothing more, its end of the input is closed."""
    said = os.read(sys.stdin.fileno(), 1024)
    if not said:
        os._exit(0)
    if secured is not None:
        for each in said:
            secured.changed(each == READ[0])


def _line() -> bytes:
    """The first line of the input, and nothing behind it."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 1)
        if not piece:
            sys.exit(0)
        line += piece
    return bytes(line)


def main() -> None:
    """Serve until the node ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        NAME_FILE.write_text(PROCESS_NAME)
    settings = msgspec.json.decode(_line(), type=DoorSettings)
    set_up(settings.node, settings.log_level, settings.log_format)
    # What strangers send is no event of the node, and the text of an error may hold what a client sent.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        asyncio.run(serve(settings))
    except TlsError as error:
        tell(log, logging.ERROR, CertificateUnread(str(error)))
        sys.exit(1)
    except OSError as error:
        tell(log, logging.ERROR, HttpDoorShut(error.strerror or str(error)))
        sys.exit(1)


if __name__ == "__main__":
    main()
