"""The names of the public API, and which of them are exceptions."""

from __future__ import annotations

from types import ModuleType

import txha
from txha import events, resources, spark, spi

MODULES: tuple[ModuleType, ...] = (txha, resources, spark, events, spi)


def exceptions() -> dict[str, type[BaseException]]:
    """Every exception that ``txha`` exports, by its name."""
    found = {name: getattr(txha, name) for name in txha.__all__}
    return {name: each for name, each in found.items() if isinstance(each, type) and issubclass(each, BaseException)}
