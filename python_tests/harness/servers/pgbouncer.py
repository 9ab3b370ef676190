"""A pgbouncer of this test's own: on loopback, on its own port and directory, pooling transactions."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from python_tests.harness.cluster import free_base_port
from python_tests.harness.servers.postgresql import START_SECONDS, ordinary_user
from python_tests.harness.servers.server_process import check_runs, start_server
from python_tests.harness.waiting import wait_until

HELP = "pgbouncer is missing; on Debian: apt-get install pgbouncer (and stop the service that it starts)"
POOL_SIZE = 6
"""Connections to a database for each role: fewer than clients, so that these share them."""
SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "trust",
    "pool_mode": "transaction",
    "default_pool_size": str(POOL_SIZE),
    "server_login_retry": "0.1",  # a server that was killed is asked again at once
    "query_wait_timeout": "2",  # seconds for which a client waits for it
    "ignore_startup_parameters": "extra_float_digits",
}


def _program() -> str:
    """Where it is; Debian has it where only root looks. Raises RuntimeError."""
    path = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if path is None:
        raise RuntimeError(HELP)
    return path


class PgBouncer:
    """A context manager: it lets ``roles`` in without a password, and knows databases by other names.

    ``databases``: the DSN of a database by the name that clients have for it. ``settings``: of pgbouncer.ini.
    """

    def __init__(self, databases: Mapping[str, str], roles: Sequence[str], **settings: str) -> None:
        self.port = free_base_port(1)
        self._databases = dict(databases)
        self._roles = list(roles)
        self._settings = {**SETTINGS, **settings}
        self._program = _program()
        self._directory = Path(tempfile.mkdtemp(prefix="txha-pgbouncer-"))
        self._log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, name: str, role: str) -> str:
        """How a client reaches a database by way of the pooler."""
        return make_conninfo("", host="127.0.0.1", port=self.port, dbname=name, user=role)

    def __enter__(self) -> PgBouncer:
        try:
            self._configure()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._directory)

    def _configure(self) -> None:
        settings = {**self._settings, "listen_port": str(self.port), "auth_file": str(self._directory / "roles")}
        lines = ["[databases]"]
        for name, dsn in self._databases.items():
            words = {key: value for key, value in conninfo_to_dict(dsn).items() if key in ("host", "port", "dbname")}
            lines.append(f"{name} = {make_conninfo('', **words)}")
        lines += ["[pgbouncer]", *(f"{key} = {value}" for key, value in settings.items())]
        (self._directory / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self._directory / "roles").write_text("".join(f'"{role}" ""\n' for role in self._roles))
        user = ordinary_user()
        if user is not None:
            for path in (self._directory, *self._directory.iterdir()):
                shutil.chown(path, user)

    def start(self) -> None:
        """Start it, and wait until it lets a client in. Raises RuntimeError if it ends instead."""
        command = [self._program, "-q", str(self._directory / "pgbouncer.ini")]
        self._process = start_server(command, self._log, ordinary_user())
        wait_until(self._listens, START_SECONDS, "a connection to pgbouncer", every=0.02)

    def _listens(self) -> bool:
        """Its own console needs no server."""
        assert self._process is not None
        check_runs(self._process, "pgbouncer", self._log)
        try:
            psycopg.connect(self.dsn("pgbouncer", "pgbouncer")).close()
        except psycopg.OperationalError as error:
            return "refused" not in str(error)
        return True

    def start_again(self) -> None:
        """Start it if it does not run."""
        if self._process is None:
            self.start()

    def kill(self) -> None:
        """SIGKILL: every connection through it is lost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
