"""Our code as one file for ``spark-submit --py-files``; third-party wheels come from the executors' own environment."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path

NEEDED = ("txobserver", "ha", "recovery", "txha", "pyspark_txha", "pyspark_txha_queue")
"""What runs in a job: the floors up to recovery, the name by which a job imports them, and the modules by which PySpark
finds the formats."""


def package_code(target: Path) -> int:
    """Write the zip file; returns how many modules are in it. Raises OSError."""
    found: dict[str, Path] = {}
    for name in NEEDED:
        module = Path(str(importlib.import_module(name).__file__))
        root = module.parent.parent if module.name == "__init__.py" else module.parent
        paths = sorted((root / name).rglob("*.py")) if module.name == "__init__.py" else [module]
        found.update({str(path.relative_to(root)): path for path in paths})
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, path in found.items():
            archive.write(path, inside)
    return len(found)
