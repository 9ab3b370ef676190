"""Libraries that a command needs and an installation without extras has not."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from broker_plugin.node.config import ConfigError


def check_installed(command: str, modules: Iterable[str], extra: str) -> None:
    """Raises ConfigError, which says how to install what is missing. ``extra``: that of txha which has it."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"txha {command} needs {', '.join(missing)}: install it with pip install 'txha[{extra}]'")
