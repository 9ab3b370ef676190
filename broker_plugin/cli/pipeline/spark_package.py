"""``txha spark-package``: what a cluster of Spark needs of us."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def spark_package(to: Annotated[Path, typer.Argument(help="The zip file to write.")]) -> None:
    """Write the code that jobs need to one file, for spark-submit --py-files."""
    from recovery.pipeline.packaging import package_code

    typer.echo(f"{package_code(to)} modules in {to}")
