"""``txha takeover``: its options. What is measured is ``harness.takeover``."""

from __future__ import annotations

from typing import Annotated

import typer

from broker_plugin.cli.asking import Json
from python_tests.harness.commands.needed import check_installed


def takeover(
    trials: Annotated[int, typer.Option(help="How often the primary is killed.", min=1)] = 20,
    coordination: Annotated[str, typer.Option(help="sqlite, or etcd: three members.")] = "sqlite",
    as_json: Json = False,
) -> None:
    """Measure how long clients wait for a survivor after SIGKILL of the primary.

    Exit status: 0 half of the take-overs were as fast as is wanted, 1 they were not, 2 for what you can mend.
    """
    check_installed("takeover", ["pika"], "clients")
    from python_tests.harness.cluster import end_on_sigterm
    from python_tests.harness.takeover import run

    end_on_sigterm()
    raise SystemExit(run(trials, as_json, coordination))
