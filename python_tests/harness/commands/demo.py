"""``txha demo``: its options. What is played is ``harness.demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.cli.asking import Json
from python_tests.harness.commands.needed import check_directory, check_installed


def demo(
    dir: Annotated[Path | None, typer.Option("--dir", help="Keep the nodes' directories here.")] = None,
    seconds: Annotated[float, typer.Option(help="How long load runs between the kills.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Kill two primaries under transactional load, and prove from the clients' records that nothing was halved."""
    check_installed("demo", ["aio_pika", "pika"], "clients")
    if dir is not None:
        check_directory(dir)
    from python_tests.harness.cluster import end_on_sigterm
    from python_tests.harness.demo import run

    end_on_sigterm()
    raise SystemExit(run(dir, seconds, as_json))
