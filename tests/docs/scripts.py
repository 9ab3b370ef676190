"""The scripts of docs/ that write pages, as modules."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.docs.prose import ROOT


def script(name: str) -> ModuleType:
    """``docs/<name>.py``, loaded; docs/ is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
