"""``txha stress``: its options. The suite itself is ``harness.stress``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from broker_plugin.node.config import ConfigError, parse_settings
from python_tests.harness.commands.needed import check_directory, check_installed

NEEDED = ("aio_pika", "matplotlib", "pika", "pyarrow")

Pairs = list[str] | None


def stress(
    context: typer.Context,
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster that is started.", min=1, max=9)] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of load, each with a fault or two.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="Length of a round; it ends later if a fault lasts.", min=1)] = 20.0,
    faults: Annotated[str | None, typer.Option(help="Kinds of faults, with commas; without it all possible.")] = None,
    schedule: Annotated[Path | None, typer.Option(help="TOML file that says which fault comes when.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same faults.")] = None,
    min_rate: Annotated[float, typer.Option(help="Transactions/s wanted, else nothing is proven.")] = 20,
    judge_every: Annotated[int, typer.Option(help="Drain and judge after so many rounds.", min=1)] = 10,
    patience: Annotated[float, typer.Option(help="Seconds for everything to be well after the faults.", min=1)] = 60.0,
    network: Annotated[str, typer.Option(help="auto, namespaces, proxies or none.")] = "auto",
    coordination: Annotated[str, typer.Option(help="sqlite, or etcd: a member beside each node.")] = "sqlite",
    dir: Annotated[Path | None, typer.Option("--dir", help="Keep history, report and nodes here.")] = None,
    report: Annotated[Path | None, typer.Option(help="The HTML page; without it DIR/report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    set_: Annotated[Pairs, typer.Option("--set", help="Override a key for every node, as in txha cluster.")] = None,
    url: Annotated[Pairs, typer.Option(help="A broker that runs already, instead of a new cluster. Repeat.")] = None,
    fault_command: Annotated[Pairs, typer.Option(help="kind=command, with --url: makes that fault. Repeat.")] = None,
    heal_command: Annotated[Pairs, typer.Option(help="kind=command, with --url: heals that fault. Repeat.")] = None,
    queue_prefix: Annotated[str, typer.Option(help="With --url: begins the names of the queues.")] = "",
    queue_argument: Annotated[Pairs, typer.Option(help="key=value, with --url: for the queues. Repeat.")] = None,
    judge: Annotated[Path | None, typer.Option(help="Run nothing: judge the history of an earlier run again.")] = None,
) -> None:
    """Put a cluster under load and faults, judge what the clients saw, and say whether the promises held.

    Exit status: 0 they held, 1 one was broken, 2 for what you can mend, 3 too little load or a fault that hit nothing.
    """
    check_installed("stress", NEEDED, "stress")
    from python_tests.harness.stress.command import MENDABLE, Options, run, run_judge
    from python_tests.harness.stress.scenario import Extent

    if (fault_command or heal_command or queue_prefix or queue_argument) and not url:
        raise ConfigError("--fault-command, --heal-command, --queue-prefix and --queue-argument go with --url")
    _check_finite(("--seconds", seconds), ("--min-rate", min_rate), ("--patience", patience))
    try:
        if judge is not None:
            raise SystemExit(run_judge(_alone(context, judge)))
        options = Options(
            directory=_usable(dir),
            nodes=nodes,
            extent=Extent(rounds, seconds, judge_every, patience),
            kinds=None if faults is None else [kind.strip() for kind in faults.split(",")],
            schedule=schedule,
            seed=seed,
            min_rate=min_rate,
            report=report,
            as_json=as_json,
            network=network,
            coordination=coordination,
            settings=set_ or [],
            urls=url or [],
            make=parse_settings(fault_command or [], "--fault-command"),
            heal=parse_settings(heal_command or [], "--heal-command"),
            queue_prefix=queue_prefix,
            queue_arguments=parse_settings(queue_argument or [], "--queue-argument"),
        )
        raise SystemExit(run(options))
    except MENDABLE as error:
        raise ConfigError(str(error)) from error


def _check_finite(*given: tuple[str, float]) -> None:
    for name, value in given:
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a finite number, and not negative")


def _usable(directory: Path | None) -> Path | None:
    if directory is None:
        return None
    check_directory(directory)
    return directory.absolute()


def _alone(context: typer.Context, judge: Path) -> Path:
    """The history to be judged. Raises ConfigError if options of a run stand beside ``--judge``, which runs nothing."""
    beside = [
        f"--{name.rstrip('_').removeprefix('as_').replace('_', '-')}"
        for name in context.params
        if name != "judge" and _was_given(context, name)
    ]
    if beside:
        raise ConfigError(f"{', '.join(beside)}: --judge only judges an earlier run again, so leave the rest out")
    return judge


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
