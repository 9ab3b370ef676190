"""The services of compose.yaml as processes: what a container engine does with them, as far as a node sees it.

Each service runs its own command, with the image's entry point. What is mounted at a path of the container stands in
a folder of the test, under a name made of the volume's; the file that is mounted as its configuration is written with
these names, and with a loopback port of its own instead of each service's name in the network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from python_tests.harness.cluster import free_base_port
from tests.packaging import dockerfile

ROOT = Path(__file__).parents[2]
TXHA = (sys.executable, "-m", "broker_plugin.cli.main")


class Composed:
    """compose.yaml, below ``directory``. ``users``: the file that is given for its secret."""

    def __init__(self, directory: Path, users: Path) -> None:
        self.file: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
        self.services: dict[str, Any] = self.file["services"]
        self.image = dockerfile.read(ROOT / "Dockerfile")[-1]
        self._directory = directory
        self._users = users
        self.nodes = [name for name, service in self.services.items() if "ports" in service]
        base = free_base_port(2 * len(self.nodes))
        self._ports = {
            name: {"amqp": base + 2 * index, "peer": base + 2 * index + 1} for index, name in enumerate(self.nodes)
        }

    def client_port(self, node: str) -> int:
        """Where this machine's clients reach a node."""
        return self._ports[node]["amqp"]

    def command(self, service: str) -> list[str]:
        """What the service's container runs."""
        given = self.services[service].get("command", self.image.words("CMD"))
        return self._here(service, [*self.image.words("ENTRYPOINT"), *given])

    def health(self, service: str) -> list[str]:
        """What its health check runs."""
        return self._here(service, self.image.health())

    def start(self, service: str) -> subprocess.Popen[bytes]:
        """The container's process, whose log goes to a file."""
        with (self._directory / f"{service}.log").open("ab") as log:
            return subprocess.Popen(self.command(service), stdout=log, stderr=log, env=self.environment())

    @staticmethod
    def environment() -> dict[str, str]:
        """A container has no variable of this machine that concerns txha, but runs this checkout."""
        return {name: value for name, value in os.environ.items() if not name.startswith("TXHA_")}

    def _here(self, service: str, words: list[str]) -> list[str]:
        assert words[0] == "txha"
        mounts = self.mounts(service)
        return [*TXHA, *(str(mounts.get(word, word)) for word in words[1:])]

    def mounts(self, service: str) -> dict[str, Path]:
        """What stands at paths of the container, and where that is here."""
        found = {f"/run/secrets/{name}": self._users for name in self.services[service]["secrets"]}
        for volume in self.services[service]["volumes"]:
            name, path = volume.split(":")
            assert name in self.file["volumes"]
            found[path] = self._directory / "volumes" / name
            found[path].mkdir(parents=True, exist_ok=True)
        for config in self.services[service]["configs"]:
            source = ROOT / self.file["configs"][config["source"]]["file"]
            found[config["target"]] = self._directory / f"{service}-{source.name}"
            values = self._moved(tomllib.loads(source.read_text()), found)
            found[config["target"]].write_text(as_toml(values))
        return found

    def _moved(self, values: dict[str, Any], mounts: dict[str, Path]) -> dict[str, Any]:
        """A configuration with paths and addresses of this machine."""
        for key in ("dir", "coordination"):
            values[key] = self._path(values[key], mounts)
        values["amqp"]["users_file"] = self._path(values["amqp"]["users_file"], mounts)
        values["peer"]["secret"] = "@" + self._path(values["peer"]["secret"].removeprefix("@"), mounts)
        for table, kind in [(values["amqp"], "amqp"), *((each, "peer") for each in (values["peer"], *values["peers"]))]:
            table["host"], table["port"] = "127.0.0.1", self._ports[table["host"]][kind]
        return values

    @staticmethod
    def _path(path: str, mounts: dict[str, Path]) -> str:
        (mount,) = [each for each in mounts if path == each or path.startswith(each + "/")]
        return str(mounts[mount]) + path.removeprefix(mount)


def as_toml(values: dict[str, Any]) -> str:
    """The text of a node's configuration."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict | list)]
    for key, value in values.items():
        for table in value if isinstance(value, list) else [value] if isinstance(value, dict) else []:
            lines.append(f"[[{key}]]" if isinstance(value, list) else f"[{key}]")
            lines += [f"{name} = {json.dumps(each)}" for name, each in table.items()]
    return "\n".join(lines) + "\n"
