"""A node's start up to some step: its parts are there as they are then, and nothing listens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.node.config import SECRET_FILE, parse_config
from broker_plugin.node.main import NodeProcess
from recovery.secret_file import make_link_secret


class Reached(Exception):
    """Raised by the step at which the start is to end."""


async def started_until_reached(directory: Path) -> Any:
    """The node; a step of its start has been made to raise ``Reached``."""
    text = f'name = "a"\ncluster = "c"\ndir = "{directory / "a"}"\ncoordination = "{directory / "r"}"\n'
    make_link_secret(directory / SECRET_FILE)
    node: Any = NodeProcess(parse_config(f"{text}[peer]\nport = 7\n", directory / "node.toml", environment={}))
    node._coordination = SimpleNamespace(give_up=lambda: None)
    node.guard.watch()
    node._open_store()
    with pytest.raises(Reached):
        await node._start()
    node.store.close()
    return node
