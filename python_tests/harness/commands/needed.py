"""What a command needs: libraries that an installation without extras has not, and a directory that can be used."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from broker_plugin.node.config import ConfigError


def check_installed(command: str, modules: Iterable[str], extra: str) -> None:
    """Raises ConfigError, which says how to install what is missing. ``extra``: that of txha which has it."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"txha {command} needs {', '.join(missing)}: install it with pip install 'txha[{extra}]'")


def check_directory(directory: Path) -> None:
    """What is there, or can be made, is a directory. Raises ConfigError, with nothing made."""
    try:
        found = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used: {error.strerror}") from None
    if not found.is_dir():
        raise ConfigError(f"{found} is no directory: choose another --dir")
