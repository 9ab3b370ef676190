"""One attack after the other, each with the well-behaved client beside it and everything measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from python_tests.suites.attacks.attack import REGISTER, Attack
from python_tests.suites.attacks.measures import Found, MemorySampler, Starvation, judged_memory, judged_waits, waits
from python_tests.suites.attacks.site import RabbitSite, RunningSite, Site, TxhaSite, VictimProcess

QUIET = "quiet"
"""What is measured with no attack, to compare with"""
QUIET_SECONDS = 5.0
LEAST_SECONDS = 1.0
"""For which the victim is watched at least, so that there is something to take a p99 of"""
ANSWER_SECONDS = 20.0
BACK_SECONDS = 45.0
"""For which a node may take to give memory back"""


def play(one: Attack | None, site: Site, victim: VictimProcess, scale: float) -> Found:
    """An attack, or quiet where there is none."""
    found = Found(one.name if one else QUIET)
    with site.watched() as watched, MemorySampler(site.pids()) as sampler:
        starvation, begin = Starvation(site.pids()), time.time()
        try:
            if one is None:
                time.sleep(QUIET_SECONDS * scale)
            else:
                found.said = one.run(site.target(scale))
        except AssertionError as error:
            found.faults.append(str(error))
        except (OSError, LookupError, ValueError) as error:
            found.faults.append(f"the attack could not be carried out: {type(error).__name__} {error}")
        time.sleep(max(0.0, LEAST_SECONDS - (time.time() - begin)))
        end, found.starved = time.time(), starvation.share()
        if not victim.answered_since(end, ANSWER_SECONDS):
            found.faults.append(f"no commit is answered within {ANSWER_SECONDS:.0f} s of the attack's end")
        sampler.given_back(BACK_SECONDS)
    found.seconds = end - begin
    found.waits = waits(victim.commits(), begin, end)
    found.memory, found.turns = sampler.found, watched.turns
    found.faults += [*watched.faults, *judged_waits(found.waits, found.starved), *judged_memory(found.memory)]
    return found


@contextmanager
def started(site: Site, directory: Path) -> Iterator[VictimProcess]:
    """The well-behaved client of a site that runs."""
    with VictimProcess(site, directory / "commits") as victim:
        yield victim


Make = Callable[[Path, bool], AbstractContextManager[Site]]
"""A site in a directory of its own, of which the attacks want few files or not"""


def installed_rabbitmq(directory: Path, few_files: bool) -> AbstractContextManager[Site]:
    """Three nodes of it."""
    return RabbitSite(directory)


def running_broker(product: str, port: int) -> Make:
    """One that is not started here."""
    return lambda directory, few_files: RunningSite(product, port)


def campaign(
    attacks: Iterable[Attack], directory: Path, scale: float, say: Callable[[Found], None], make: Make = TxhaSite
) -> list[Found]:
    """All of them, each told when it has ended. A site at which something was wrong is made anew for the next attack.

    Raises RuntimeError where a broker does not start.
    """
    found: list[Found] = []
    played = attacks_of(attacks, foreign=make is not TxhaSite)
    groups = {few: [each for each in played if each.few_files is few] for few in (False, True)}
    for few, group in groups.items():
        waiting: list[Attack | None] = [*([] if few else [None]), *group]
        while waiting and group:
            with ExitStack() as stack:
                own = directory / f"site-{len(found)}"
                own.mkdir(parents=True)
                own.chmod(0o755)
                site = stack.enter_context(make(own, few))
                victim = stack.enter_context(started(site, own))
                while waiting:
                    found.append(play(waiting.pop(0), site, victim, scale))
                    say(found[-1])
                    if found[-1].faults:
                        break
    return found


def attacks_of(attacks: Iterable[Attack], foreign: bool) -> list[Attack]:
    """Those that this broker can be attacked by: of ``foreign`` ones, those of AMQP."""
    return [each for each in attacks if each.amqp or not foreign]


def chosen(only: Iterable[str], slice_only: bool) -> list[Attack]:
    """Those of these names, or all of them, or those of CI's slice. Raises ValueError for a name that there is not."""
    names = list(only)
    for name in names:
        if name not in REGISTER:
            raise ValueError(f"there is no attack {name}: --list shows all of them")
    if names:
        return [REGISTER[name] for name in names]
    return [each for each in REGISTER.values() if each.in_slice or not slice_only]
