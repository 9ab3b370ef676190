"""What a run has found, in lines and as a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from python_tests.suites.attacks.attack import Attack, Listener
from python_tests.suites.attacks.campaign import QUIET
from python_tests.suites.attacks.measures import MIB, Found

TEXT = Path(__file__).with_name("page.md")
TXHA = "txha"
WIDTH = 100
COLUMNS = ("attack", "p50, p99, longest pause (ms)", "starved", "memory before, peak, after (MiB)", "long turns",
           "what came of it")  # fmt: skip

KNOWN = {
    "open-transaction": "other commits stand behind up to 8 MiB in the one stream (`backlog_bytes`).",
}
"""Why an attack does harm, as far as that is known"""


def in_a_line(found: Found) -> str:
    """For a user who waits; faults in lines of their own."""
    waits = found.waits
    grown = max((each.peak - each.before for each in found.memory.values()), default=0) / MIB
    line = (
        f"{found.attack:34} {found.seconds:5.1f} s  {waits.commits:4} commits  p50 {_ms(waits.p50)}  "
        f"p99 {_ms(waits.p99)}  longest {_ms(waits.longest)}  +{grown:.0f} MiB  {len(found.turns)} long turns  "
        f"starved {found.starved:.0%}  {found.said}"
    )
    return "\n".join([line, *(f"    HARM {fault}" for fault in found.faults)])


def summary(runs: Mapping[str, Sequence[Found]]) -> str:
    """The last words: harm by attack."""
    lines = []
    for product, found in runs.items():
        harmed = [each for each in found if each.faults]
        lines.append(f"{product}: {len(found)} played, {len(harmed)} did harm")
        lines += [f"  {each.attack}: {fault}" for each in harmed for fault in each.faults]
    return "\n".join(lines)


def table_of(attacks: Sequence[Attack]) -> str:
    """Names, where they come in, and what they do."""
    return "\n".join(f"{each.name:34} {each.listener.value}: {each.does}" for each in attacks)


def page(attacks: Sequence[Attack], runs: Mapping[str, Sequence[Found]], scale: float) -> str:
    """docs/attacks.md of a run in which so much of each attack was played."""
    by_name = {product: {each.attack: each for each in found} for product, found in runs.items()}
    ours = by_name[TXHA]
    parts = [TEXT.read_text(), f"## The run\n\n{_machine(scale)}\n", _totals(runs)]
    for listener in Listener:
        of_it = [each for each in attacks if each.listener is listener and each.name in ours]
        if of_it:
            parts.append(f"## {listener.value[0].upper()}{listener.value[1:]}\n\n{_rows(of_it, ours)}")
    parts += [_beside(attacks, by_name), _described(attacks), _harm(runs)]
    return "\n".join(part for part in parts if part)


def _machine(scale: float) -> str:
    processors = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return _wrapped(
        f"{processors} processors, {memory:.0f} GiB of memory, Linux {platform.release().split('-')[0]}, Python "
        f"{platform.python_version()}. The nodes, the attacker and the well-behaved client share the processors, and "
        "other work ran on the machine at the same time; so times are longer than they need be."
        + (f" Of each attack {scale:.0%} was played: so much of the numbers in its description." if scale != 1 else "")
    )


def _totals(runs: Mapping[str, Sequence[Found]]) -> str:
    rows = ["| broker | attacks | commits | failed | longest pause | long turns | attacks that did harm |"]
    rows.append("|---|---|---|---|---|---|---|")
    for product, found in runs.items():
        longest = max(each.waits.longest for each in found)
        cells = [
            product, len(found) - 1, f"{sum(each.waits.commits for each in found):,}",
            sum(len(each.waits.failed) for each in found), _ms(longest),
            sum(len(each.turns) for each in found) if product == TXHA else "", sum(bool(each.faults) for each in found),
        ]  # fmt: skip
        rows.append(_row(cells))
    return "\n".join(rows) + "\n"


def _rows(attacks: Sequence[Attack], ours: Mapping[str, Found]) -> str:
    rows = [_row(COLUMNS), "|" + "---|" * len(COLUMNS)]
    quiet = [ours[QUIET]] if QUIET in ours and attacks[0].listener is Listener.PRIMARY else []
    for found in [*quiet, *(ours[each.name] for each in attacks)]:
        waits = found.waits
        turns = f"{len(found.turns)}, up to {_ms(max(each for each, _ in found.turns))}" if found.turns else "0"
        said = _escaped(found.said) + (" **harm, see below**" if found.faults else "")
        times = ", ".join(f"{each * 1000:.0f}" for each in (waits.p50, waits.p99, waits.longest))
        rows.append(_row([found.attack, times, f"{found.starved:.0%}", _memory(found), turns, said]))
    return "\n".join(rows) + "\n"


def _memory(found: Found) -> str:
    """Of the node that grew most."""
    if not found.memory:
        return ""
    most = max(found.memory.values(), key=lambda each: each.peak - each.before)
    return ", ".join(f"{value / MIB:.0f}" for value in (most.before, most.peak, most.after))


def _beside(attacks: Sequence[Attack], by_name: Mapping[str, Mapping[str, Found]]) -> str:
    others = [product for product in by_name if product != TXHA]
    if not others:
        return ""
    head = ["attack"] + [f"{product}: p99, longest pause, answer" for product in by_name]
    rows = [_row(head), "|" + "---|" * len(head)]
    names = [QUIET, *(each.name for each in attacks if each.amqp)]
    for name in names:
        cells = [name]
        for found in by_name.values():
            one = found.get(name)
            harm = " **harm**" if one and one.faults else ""
            cells.append(f"{_ms(one.waits.p99)}, {_ms(one.waits.longest)}, {_escaped(one.said)}{harm}" if one else "")
        rows.append(_row(cells))
    return "## Beside RabbitMQ\n\n" + "\n".join(rows) + "\n"


def _described(attacks: Sequence[Attack]) -> str:
    rows = ["| attack | what it does | steps counted by |", "|---|---|---|"]
    rows += [_row([each.name, _escaped(each.does), f"`{each.held_by}`" if each.held_by else ""]) for each in attacks]
    return "## What each does\n\n" + "\n".join(rows) + "\n"


def _harm(runs: Mapping[str, Sequence[Found]]) -> str:
    lines = []
    for product, found in runs.items():
        for each in found:
            lines += [f"- {product}, {each.attack}: {_escaped(fault)}" for fault in each.faults]
            if each.faults and product == TXHA and each.attack in KNOWN:
                lines.append(f"- why {each.attack} does: {KNOWN[each.attack]}")
    if not lines:
        return "## Harm\n\nNone in this run.\n"
    return "## Harm\n\n" + "\n".join(_wrapped(line, "  ") for line in lines) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
