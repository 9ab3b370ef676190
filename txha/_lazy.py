"""Names that are imported when they are asked for: ``import txha`` needs none of the optional extras."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

EXTRAS = {"recovery.dtx.": "clients", "recovery.coordinator.": "dtx", "recovery.pipeline.": "spark"}
"""Which extra of ``pip install 'txha[…]'`` has what the modules of a package import."""

OURS = ("", "txha", "recovery", "ha", "txobserver")
"""Packages that no extra has. The empty one is that of an error that names none."""


def lazy(
    module: str, places: Mapping[str, tuple[str, ...]], namespace: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a module.

    ``places``: which names each module has; a module that has none is a name itself, the last part of its own.
    ``namespace``: the globals of ``module``, where what was found is kept.
    """
    found_in = {name: where for where, names in places.items() for name in names or (where.rpartition(".")[2],)}

    def getattr_(name: str) -> Any:
        if name not in found_in:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        where = found_in[name]
        try:
            found = import_module(where)
        except ModuleNotFoundError as error:
            raise _told(f"{module}.{name}", where, error) from error
        namespace[name] = value = getattr(found, name) if places[where] else found
        return value

    def dir_() -> list[str]:
        return sorted({*namespace, *found_in})

    return getattr_, dir_


def _told(name: str, where: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with the extra that is to be installed, if it is that which is missing."""
    extra = next((extra for package, extra in EXTRAS.items() if where.startswith(package)), None)
    missing = (error.name or "").partition(".")[0]
    if extra is None or missing in OURS:
        return error
    return ModuleNotFoundError(f"{name} needs {missing}: pip install 'txha[{extra}]'", name=error.name)
