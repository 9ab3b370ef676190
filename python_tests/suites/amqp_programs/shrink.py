"""Makes a program that shows something smaller, as long as it still shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from python_tests.suites.amqp_programs.program import Op, Program, Step

Shows = Callable[[Program], bool]
ATTEMPTS = 120
"""Programs that are played at most."""


def shrink(program: Program, shows: Shows) -> Program:
    """The smallest that was found: fewer steps, fewer operations, plainer ones."""
    left = ATTEMPTS
    again = True
    while again and left > 0:
        again = False
        for smaller in _smaller(program):
            left -= 1
            if left <= 0:
                break
            if shows(smaller):
                program, again = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """From the boldest to the smallest change."""
    count = len(program)
    size = count // 2
    while size:
        for start in range(0, count, size):
            if count > size:
                yield program[:start] + program[start + size :]
        size //= 2
    for at, step in enumerate(program):
        for plainer in _plainer(step):
            yield (*program[:at], plainer, *program[at + 1 :])


def _plainer(step: Step) -> Iterator[Step]:
    if len(step.ops) > 1:
        for at in range(len(step.ops)):
            yield step._replace(ops=step.ops[:at] + step.ops[at + 1 :])
    if step.writes > 1:
        yield step._replace(writes=1)
    if step.order:
        yield step._replace(order=0)
    for at, op in enumerate(step.ops):
        for key in ("properties", "size", "frames", "arguments", "mandatory", "nowait", "auto_delete"):
            if op.arguments.get(key):
                fewer = {name: value for name, value in op.arguments.items() if name != key}
                yield step._replace(ops=(*step.ops[:at], Op(op.channel, op.name, fewer), *step.ops[at + 1 :]))
