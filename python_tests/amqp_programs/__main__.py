"""``python -m python_tests.amqp_programs``: draw programs by seed, play them against RabbitMQ and txha, compare."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from python_tests.amqp_programs.brokers import both, rabbitmq
from python_tests.amqp_programs.campaign import Campaign
from python_tests.amqp_programs.player import Player
from python_tests.amqp_programs.recorded import FILE, record
from python_tests.processes import end_on_sigterm

EVERY = 50
"""Programs between two lines of progress."""


def main(
    programs: Annotated[int, typer.Option(help="How many are played", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="The first one's; the next ones have the next numbers", min=0)] = 0,
    rabbitmq_port: Annotated[int | None, typer.Option(help="A RabbitMQ that runs already, empty")] = None,
    txha_port: Annotated[int | None, typer.Option(help="A txha that runs already, empty")] = None,
    most_faults: Annotated[int, typer.Option(help="Stop when so many were found", min=1)] = 20,
    record_anew: Annotated[bool, typer.Option("--record", help="Write RabbitMQ's answers to the tests' file")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON")] = False,
) -> None:
    """Random programs of AMQP methods against txha and a real RabbitMQ 3.10; what has no port given is started here.

    The exit status is 0 if txha answers each program as RabbitMQ does, but for what docs/differences.md lists, 1 if it
    does not, 2 if a broker cannot be started, and 130 if Ctrl-C ended it before, with what was found until then. A
    program that differs is shown cut down.
    """
    end_on_sigterm()
    errors = Console(stderr=True, highlight=False)

    def progress(played: int, faults: int) -> None:
        if played % EVERY == 0:
            errors.print(f"{played} of {programs} programs, {faults} differ")

    try:
        if record_anew:
            with rabbitmq(rabbitmq_port) as port:
                record(Player(port), seed, programs, progress)
            errors.print(f"{programs} programs recorded in {FILE}")
            return
        with both(rabbitmq_port, txha_port) as ports:
            campaign = Campaign(*map(Player, ports), progress)
            stopped = False
            try:
                campaign.run(seed, programs, most_faults)
            except KeyboardInterrupt:
                stopped = True
                errors.print(f"stopped in program {campaign.played} of {programs}")
    except RuntimeError as error:
        errors.print(f"[red]{error}")
        sys.exit(2)
    print(campaign.as_json() if as_json else "\n\n".join([*(f.text() for f in campaign.faults), campaign.summary()]))
    sys.exit(1 if campaign.faults else 130 if stopped else 0)


if __name__ == "__main__":
    typer.run(main)
