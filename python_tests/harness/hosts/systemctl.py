#!/usr/bin/env python3
"""What ``systemctl`` does with services, for a host that systemd does not run: it starts and ends what a unit names.

Of a unit it reads ExecStart, User, Environment, EnvironmentFile, LoadCredential, StateDirectory and WorkingDirectory;
what confines a service is not done here. ``start`` (and ``enable --now``), ``stop``, ``restart``, ``is-active``.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = (Path("/etc/systemd/system"), Path("/lib/systemd/system"))
RUNNING = Path("/run/services")
STOP_SECONDS = 20.0


def unit(name: str) -> tuple[str, dict[str, list[str]]]:
    """The instance of a unit, and its settings. Ends with status 5, as systemctl does, where there is none."""
    name = name.removesuffix(".service")
    template, at, instance = name.partition("@")
    file = f"{template}{at}.service"
    for directory in UNITS:
        if (directory / file).is_file():
            settings: dict[str, list[str]] = {}
            for line in (directory / file).read_text().replace("\\\n", " ").splitlines():
                key, equals, value = line.partition("=")
                if equals and not line.startswith("#"):
                    told = value.strip().replace("%i", instance).replace("%p", template)
                    settings.setdefault(key.strip(), []).append(told.replace("%H", socket.gethostname()))
            return instance, settings
    sys.exit(f"Unit {file} could not be found.")


def environment(name: str, settings: dict[str, list[str]]) -> dict[str, str]:
    credentials = RUNNING / f"{name}.credentials"
    found = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for each in settings.get("LoadCredential", ()):
        key, _, path = each.partition(":")
        credentials.mkdir(mode=0o700, parents=True, exist_ok=True)
        (credentials / key).write_bytes(Path(path).read_bytes())
        (credentials / key).chmod(0o400)
        _give(credentials, settings)
    for each in settings.get("Environment", ()):
        for word in shlex.split(each):
            key, _, value = word.partition("=")
            found[key] = value.replace("%d", str(credentials))
    for each in settings.get("EnvironmentFile", ()):
        file = Path(each.lstrip("-"))
        for line in file.read_text().splitlines() if file.is_file() else ():
            if line and not line.startswith("#"):
                key, _, value = line.partition("=")
                found[key] = " ".join(shlex.split(value))
    return found


def _give(directory: Path, settings: dict[str, list[str]]) -> None:
    user = settings.get("User", ["root"])[-1]
    for each in (directory, *directory.iterdir()):
        shutil.chown(each, user)


def start(name: str) -> None:
    if is_active(name):
        return
    _, settings = unit(name)
    user = pwd.getpwnam(settings.get("User", ["root"])[-1])
    for directory in settings.get("StateDirectory", ()):
        path = Path("/var/lib") / directory
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(path, user.pw_uid, user.pw_gid)
    given = environment(name, settings)
    words = [os.path.expandvars(word) for word in shlex.split(settings["ExecStart"][-1])]
    command = [found for word in words if (found := given.get(word[1:], "") if word.startswith("$") else word)]
    RUNNING.mkdir(exist_ok=True)
    with (RUNNING / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=given,
            cwd=settings.get("WorkingDirectory", ["/"])[-1],
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            umask=int(settings.get("UMask", ["0022"])[-1], 8),
            start_new_session=True,
        )
    (RUNNING / f"{name}.pid").write_text(str(process.pid))


def stop(name: str) -> None:
    if (pid := _pid(name)) is None:
        return
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while _pid(name) is not None:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def is_active(name: str) -> bool:
    return _pid(name) is not None


def _pid(name: str) -> int | None:
    try:
        pid = int((RUNNING / f"{name}.pid").read_text())
        ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (OSError, ValueError):
        return None
    return None if ended else pid


def main(words: list[str]) -> int:
    command, *names = [word for word in words if not word.startswith("-")]
    names = [name.removesuffix(".service") for name in names]
    if command == "daemon-reload":
        return 0
    if command == "is-active":
        print("\n".join("active" if is_active(name) else "inactive" for name in names))
        return 0 if all(map(is_active, names)) else 3
    for name in names:
        if command in ("stop", "restart", "disable"):
            stop(name)
        if command in ("start", "restart") or (command == "enable" and "--now" in words):
            start(name)
        elif command == "enable":
            unit(name)
    return 0 if command in ("start", "stop", "restart", "enable", "disable") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
