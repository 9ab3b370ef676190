"""A local cluster each of whose nodes runs a release of its own, on the same directories and ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.support.releases import Release

WAIT_SECONDS = 60.0
SETTINGS = ("timing.lease_ttl=3", "log_level=info")
TXHA = (sys.executable, "-m", "broker_plugin.cli.main")
WITHOUT_A_WORD = "0.1.0"
"""The release whose status does not tell its version"""


class MixedCluster(LocalCluster):
    """Three nodes, all of ``release`` at first. Which node runs which is looked up in what each says of itself."""

    def __init__(self, directory: Path, release: Release, *settings: str) -> None:
        self.settings = [*SETTINGS, *settings]
        options = [word for setting in self.settings for word in ("--set", setting)]
        super().__init__(directory, 3, *options, environment=release.environment())
        self.runs = {f"node-{number}": release for number in (1, 2, 3)}
        self.programs: dict[str, Path | None] = {}

    def versions(self) -> dict[str, str]:
        """What each node that answers says that it runs."""
        return {each["name"]: each.get("version", WITHOUT_A_WORD) for each in self.status() if each["state"] != "down"}

    def stop_node(self, name: str) -> None:
        """SIGTERM, and its end. Raises TimeoutError."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not self.processes.runs_as(name, pid), WAIT_SECONDS, f"the end of {name}")

    def start_with(self, name: str, release: Release, program: Path | None = None) -> None:
        """Start a node that has ended; ``program`` in place of txha's command."""
        self.runs[name] = release
        self.programs[name] = program
        self.start_node(name, release.environment(), self.settings)

    def node_command(self, name: str, settings: Sequence[str] = ()) -> list[str]:
        """As ever, or the program that it was started with."""
        command = super().node_command(name, settings)
        program = self.programs.get(name)
        return command if program is None else [sys.executable, str(program), *command[len(TXHA) :]]

    def replace(self, name: str, release: Release) -> None:
        """Stop it cleanly, and start it with this release. Raises TimeoutError, and RuntimeError if another runs."""
        self.stop_node(name)
        self.start_with(name, release)
        self.wait_all_ready()
        if (told := self.versions()[name]) != release.version:
            raise RuntimeError(f"{name} was started with {release.version}, and says that it runs {told}")

    def wait_all_ready(self) -> None:
        """Raises TimeoutError, with what the nodes say."""
        try:
            wait_until(self.all_ready, WAIT_SECONDS, "all nodes ready", every=0.05)
        except TimeoutError as error:
            found = [(each["name"], each["state"], each.get("waits_for_operator")) for each in self.status()]
            raise TimeoutError(f"{error}: {found}") from error

    def hand_over(self, name: str) -> None:
        """``txha promote``, of the release that the node runs, which waits until it is the primary."""
        self.txha("promote", name, release=self.runs[name])

    def txha(self, *words: str, release: Release, given: str = "") -> str:
        """What a command of a release prints, asked about this cluster. Raises RuntimeError with what it said."""
        done = subprocess.run(
            [*TXHA, *words, "--dir", str(self.directory)],
            input=given,
            capture_output=True,
            text=True,
            env={**os.environ, **release.environment()},
            cwd=self.directory,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"txha {' '.join(words)} of {release.version} ended with {done.returncode}: {done.stderr}"
            )
        return done.stdout

    def asked(self, *words: str, release: Release) -> Any:
        """The same as JSON."""
        return json.loads(self.txha(*words, "--json", release=release))

    def backup(self, version: str) -> str | None:
        """The first ready backup of this version."""
        versions = self.versions()
        return next((name for name in sorted(self.backups()) if versions.get(name) == version), None)
