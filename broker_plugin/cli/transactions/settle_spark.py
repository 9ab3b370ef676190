"""``txha dtx settle-spark``: what Spark drivers that never came back have left prepared."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from typing import Annotated

import typer

from broker_plugin.cli.addresses import BROKER_HELP, read_brokers, shown
from broker_plugin.cli.asking import BadArgument, Json
from broker_plugin.cli.terminal import say


def settle_spark(
    broker: Annotated[str, typer.Option("--broker", help=BROKER_HELP)],
    give_up: Annotated[
        list[str] | None,
        typer.Option(
            "--give-up", help="A query that never comes again: roll its undecided batch back. May be repeated."
        ),
    ] = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a driver that is committing.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Carry out what sinks of Spark have decided, and list what is not: their queries settle that when they start.

    Exit status 0: nothing is left in doubt; 1: something is.
    """
    if find_spec("pika") is None:
        raise BadArgument("dtx settle-spark needs pika: pip install 'txha[spark]'")
    from broker_plugin.cli.tables import left_by_spark_table
    from recovery.dtx.errors import DatabaseError
    from recovery.dtx.hosts import urls_in
    from recovery.pipeline.errors import PipelineError
    from recovery.pipeline.queues.settle import ELSEWHERE, UNDECIDED, settle

    [urls] = read_brokers([broker])
    if not 0 <= patience < math.inf:
        raise BadArgument("--patience must be a finite number of seconds, and not negative")
    try:
        left = settle(urls_in(urls), give_up or [], patience)
    except (DatabaseError, PipelineError) as error:
        raise BadArgument(f"{shown(urls)}: {error}") from None
    if as_json:
        typer.echo(json.dumps([each._asdict() for each in left], indent=2))
    else:
        left_by_spark_table([each._asdict() for each in left])
    for query in sorted(set(give_up or []) - {each.query for each in left}):
        say(f"txha: nothing is prepared of a query {query}, so nothing was rolled back", beside=True)
    raise SystemExit(1 if any(each.state in (UNDECIDED, ELSEWHERE) for each in left) else 0)
