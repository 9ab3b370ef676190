"""A PostgreSQL server of this test's own: on loopback, on its own port and directory, as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

import psycopg

from python_tests.harness.cluster import free_base_port
from python_tests.harness.servers.server_process import check_runs, start_server
from python_tests.harness.waiting import wait_until

BINARIES = "/usr/lib/postgresql"
"""Debian's place for the programs, one directory for each version."""
HELP = "PostgreSQL's server is missing; on Debian: apt-get install postgresql-15 (and stop the service that it starts)"
START_SECONDS = 30.0
SETTINGS = {
    "max_prepared_transactions": "200",
    "fsync": "on",
    "synchronous_commit": "on",
    "listen_addresses": "127.0.0.1",
    "autovacuum": "off",  # nothing but what a test does; no test lasts long enough to need it
    "max_connections": "100",
    "recovery_init_sync_method": "syncfs",  # after a kill one call, not one for each of a thousand files
}


def _program(name: str) -> str:
    """Where a program of the newest version is. Raises RuntimeError if there is none."""
    found = sorted(Path(BINARIES).glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise RuntimeError(HELP)
    return path


def ordinary_user() -> str | None:
    """Who runs the server: it refuses to run as root. None: the user who runs the tests."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class PostgreSQL:
    """A context manager: the server and its files end with it. ``dsn`` leads to the database ``bank``.

    Commits are synced as they are by default, so that a SIGKILL proves what it seems to prove.
    """

    def __init__(self) -> None:
        self.port = free_base_port(1)
        self.dsn = f"host=127.0.0.1 port={self.port} dbname=bank user=owner"
        self.directory = Path(tempfile.mkdtemp(prefix="txha-postgresql-"))
        self._log = self.directory / "log"
        self._user = ordinary_user()
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgreSQL:
        try:
            self._create()
            self.start()
            with psycopg.connect(self.dsn.replace("dbname=bank", "dbname=postgres"), autocommit=True) as connection:
                connection.execute("CREATE DATABASE bank")
                connection.execute("CHECKPOINT")  # or the first restart after a kill syncs a thousand new files
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.directory)

    def _create(self) -> None:
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        command = [_program("initdb"), "-D", str(self._data), "-U", "owner", "--auth=trust", "--no-sync", "-E", "UTF8"]
        made = subprocess.run(command, user=self._user, cwd="/", capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr[-500:]}")

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises RuntimeError if it ends instead."""
        given = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        options = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        command = [_program("postgres"), "-D", str(self._data), *options]
        self._server = start_server(command, self._log, self._user)
        wait_until(self._answers, START_SECONDS, "a connection to PostgreSQL", every=0.05)

    def _answers(self) -> bool:
        self._check_runs()
        try:
            psycopg.connect(self.dsn.replace("dbname=bank", "dbname=postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _check_runs(self) -> None:
        assert self._server is not None
        check_runs(self._server, "PostgreSQL", self._log)

    def crash(self) -> None:
        """As ``pg_ctl stop -m immediate`` and a start: every process ends at once, and the log is read again."""
        assert self._server is not None
        pids = [self._server.pid, *_children(self._server.pid)]
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait()
        wait_until(lambda: not any(map(_lives, pids)), START_SECONDS, "the end of the server's processes")
        self.start()

    def start_again(self) -> None:
        """Start it if it does not run."""
        if self._server is None:
            self.start()

    def kill(self) -> None:
        """SIGKILL of the server and of every process of its, each by its pid; nothing is written any more."""
        if self._server is None:
            return
        pids = [self._server.pid, *_children(self._server.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has ended in between
                continue
        self._gone(pids)

    def stop_at_once(self) -> None:
        """As ``pg_ctl stop -m immediate``: nothing is written any more, and the next start recovers."""
        if self._server is None:
            return
        pids = [self._server.pid, *_children(self._server.pid)]
        self._server.send_signal(signal.SIGQUIT)
        self._gone(pids)

    def _gone(self, pids: list[int]) -> None:
        assert self._server is not None
        self._server.wait()
        self._server = None
        wait_until(lambda: not any(map(_lives, pids)), START_SECONDS, "the end of the server's processes")


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process; of none that is there any more, ``X`` and 0."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[1])


def _lives(pid: int) -> bool:
    """A zombie does not: it holds nothing but its number."""
    return _stat(pid)[0] not in "XZ"


def _children(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _stat(pid)[1] == parent]
