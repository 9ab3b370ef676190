"""``make attacks``: everything that harms, one attack after the other, while a well-behaved client commits."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from python_tests.harness.cluster import end_on_sigterm
from python_tests.suites.attacks.attack import Attack
from python_tests.suites.attacks.campaign import Make, campaign, chosen, installed_rabbitmq, running_broker
from python_tests.suites.attacks.every import MODULES
from python_tests.suites.attacks.measures import Found
from python_tests.suites.attacks.page import TXHA, in_a_line, page, summary, table_of
from python_tests.suites.attacks.site import RabbitSite, TxhaSite

SLICE_SCALE = 0.05
BROKER = "Attack a broker on this machine that runs already, and has user guest: 'NAME=PORT'; may be given again"
BESIDE = "Put the brokers of an earlier run beside, from what --json printed; may be given again"


def main(
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this attack; may be given again")] = None,
    show: Annotated[bool, typer.Option("--list", help="Print the attacks, and play none")] = False,
    slice_only: Annotated[bool, typer.Option("--slice", help="A few, and a small part of each, as in CI")] = False,
    scale: Annotated[float, typer.Option(help="What part of each attack is played", min=0.001, max=10)] = 1.0,
    rabbitmq: Annotated[bool, typer.Option("--rabbitmq", help="Attack the installed RabbitMQ as well")] = False,
    brokers: Annotated[list[str] | None, typer.Option("--broker", help=BROKER)] = None,
    others_only: Annotated[bool, typer.Option("--others-only", help="Do not attack txha itself")] = False,
    beside: Annotated[list[Path] | None, typer.Option("--beside", help=BESIDE)] = None,
    write: Annotated[Path | None, typer.Option(help="Write the page of this run here, as docs/attacks.md")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON")] = False,
) -> None:
    """Attack three nodes by every port that they listen on, and see what a well-behaved client notices.

    Exit status 0: no attack did harm; 1: one did, and `--only` plays it again; 2: something that you can mend.
    """
    assert MODULES
    errors = Console(stderr=True, highlight=False)
    try:
        attacks = chosen(only or [], slice_only)
        if others_only and write is not None:
            raise ValueError("--write makes the page of txha: leave --others-only out, or --write")
    except ValueError as error:
        errors.print(str(error), markup=False)
        sys.exit(2)
    if show:
        print(json.dumps([_shown(each) for each in attacks], indent=1) if as_json else table_of(attacks))
        return
    end_on_sigterm()
    scale = SLICE_SCALE if slice_only and scale == 1.0 else scale

    def say(found: Found) -> None:
        errors.print(in_a_line(found), markup=False, soft_wrap=True)

    runs: dict[str, list[Found]] = {}
    try:
        earlier = [_earlier(file) for file in beside or []]
        for product, make in _sites(not others_only, rabbitmq, brokers or []).items():
            errors.print(f"== {product}", markup=False)
            with tempfile.TemporaryDirectory(prefix="txha-attacks-") as directory:
                Path(directory).chmod(0o755)
                runs[product] = campaign(attacks, Path(directory), scale, say, make)
        for run in earlier:
            runs |= {product: found for product, found in run.items() if product not in runs}
    except (OSError, RuntimeError, ValueError) as error:
        errors.print(str(error), markup=False)
        sys.exit(2)
    if write is not None:
        write.write_text(page(attacks, runs, scale))
    if as_json:
        print(json.dumps({product: [each.as_dict() for each in found] for product, found in runs.items()}))
    else:
        print(summary(runs))
    sys.exit(1 if any(each.faults for each in runs.get(TXHA, [])) else 0)


def _sites(own: bool, rabbitmq: bool, brokers: Iterable[str]) -> dict[str, Make]:
    """What is attacked, by name. Raises ValueError."""
    sites: dict[str, Make] = {TXHA: TxhaSite} if own else {}
    if rabbitmq:
        sites[RabbitSite.product] = installed_rabbitmq
    for broker in brokers:
        name, _, port = broker.rpartition("=")
        if not name or name in sites or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"--broker {broker}: give a new name and a port, as in 'RabbitMQ 4.0=5691'")
        sites[name] = running_broker(name, int(port))
    if not sites:
        raise ValueError("--others-only leaves nothing to attack: give --rabbitmq or --broker as well")
    return sites


def _earlier(file: Path) -> dict[str, list[Found]]:
    """An earlier run. Raises OSError and ValueError."""
    try:
        run = json.loads(file.read_text())
        return {product: [Found.from_dict(each) for each in found] for product, found in run.items()}
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"--beside {file}: this is not what --json of this command prints") from error


def _shown(one: Attack) -> dict[str, str | bool]:
    return {"name": one.name, "listener": one.listener.value, "does": one.does, "test": one.held_by,
            "slice": one.in_slice}  # fmt: skip


if __name__ == "__main__":
    typer.run(main)
