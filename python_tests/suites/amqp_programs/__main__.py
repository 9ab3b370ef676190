"""``python -m python_tests.suites.amqp_programs``: draw programs, play them against RabbitMQ and txha, compare."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from python_tests.harness.cluster import end_on_sigterm
from python_tests.suites.amqp_programs.brokers import INSTALLED, brokers, rabbitmq
from python_tests.suites.amqp_programs.campaign import Totals, campaign
from python_tests.suites.amqp_programs.player import Player
from python_tests.suites.amqp_programs.recorded import FILE, record

RABBITMQ = f"Compare with it: its URL, or {INSTALLED}, which is started here; may be given more than once"


def main(
    programs: Annotated[int, typer.Option(help="Number of programs", min=1)] = 2000,
    first: Annotated[int, typer.Option("--first", "--seed", help="Seed of the first program", min=0)] = 0,
    rabbitmqs: Annotated[list[str], typer.Option("--rabbitmq", help=RABBITMQ)] = [INSTALLED],  # noqa: B006
    txha: Annotated[str | None, typer.Option(help="The URL of a txha that runs already, empty")] = None,
    races: Annotated[bool, typer.Option("--races", help="Requests of several connections at once instead")] = False,
    jobs: Annotated[int, typer.Option(help="Programs that are played at once", min=1)] = 1,
    file: Annotated[Path | None, typer.Option(help="Remember here what is done, and go on from there")] = None,
    most_faults: Annotated[int, typer.Option(help="Stop when so many were found", min=1)] = 20,
    record_anew: Annotated[bool, typer.Option("--record", help="Write RabbitMQ's answers to the tests' file")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the sums as JSON")] = False,
) -> None:
    """Random programs of AMQP methods against txha and each RabbitMQ, at the same time.

    The exit status is 0 if txha answers each program as RabbitMQ does, but for what docs/differences.md lists, 1 if it
    does not, 2 if a broker cannot be reached, and 130 if Ctrl-C ended it before, with what was found until then. A
    program that differs is shown cut down.
    """
    end_on_sigterm()
    errors = Console(stderr=True, highlight=False)
    totals, stopped = Totals(), False
    try:
        if record_anew:
            with rabbitmq(rabbitmqs[0]) as where:
                record(Player(where), first, programs, lambda kept: errors.print(f"{kept} of {programs} recorded"))
            errors.print(f"{programs} programs recorded in {FILE}")
            return
        with brokers(rabbitmqs, txha, jobs) as found:
            seeds = range(first, first + programs)
            campaign(seeds, found, file, most_faults, lambda text: errors.print(f"[dim]{text}"), totals, races)
    except KeyboardInterrupt:
        if record_anew:
            sys.exit(130)
        stopped = True
        errors.print(f"stopped after {totals.programs} of {programs} programs")
    except (OSError, RuntimeError, ValueError) as error:
        errors.print(f"[red]{error}", markup=True)
        sys.exit(2)
    if as_json:
        print(json.dumps(totals.as_dict()))
    else:
        again = f"python -m python_tests.suites.amqp_programs{' --races' * races} --programs 1 --first"
        shown = [f"seed {fault.seed}, {fault.product}: {again} {fault.seed}\n{fault.text}" for fault in totals.faults]
        print("\n\n".join([*shown, totals.summary()]))
    sys.exit(1 if totals.faults else 130 if stopped else 0)


if __name__ == "__main__":
    typer.run(main)
