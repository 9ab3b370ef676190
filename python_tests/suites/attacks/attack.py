"""What an attack is, where it is aimed at, and the register of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from python_tests.suites.attacks.target import Target


class Listener(Enum):
    """Where an attack comes in."""

    PRIMARY = "AMQP at the primary"
    BACKUP = "AMQP through a backup"
    PEER = "the port for nodes"
    READER = "the port for nodes, as a reader of the log"
    ADMIN = "the port for operators"
    DOOR = "the HTTP door"
    FILES = "the files of a node"


@dataclass(frozen=True)
class Attack:
    """``does`` says in a sentence what is done; ``held_by`` names a test that counts steps for the same case.

    ``run`` carries it out and returns, in a few words, what came of it. ``in_slice``: CI plays it. ``few_files``: the
    nodes are started with a small limit of open files, for the attacks that want that.
    """

    name: str
    listener: Listener
    does: str
    run: Callable[[Target], str]
    held_by: str = ""
    in_slice: bool = False
    few_files: bool = False

    @property
    def amqp(self) -> bool:
        """Whether another broker can be attacked so as well."""
        return self.listener is Listener.PRIMARY and not self.few_files


REGISTER: dict[str, Attack] = {}


def attack(
    listener: Listener, does: str, held_by: str = "", in_slice: bool = False, few_files: bool = False
) -> Callable[[Callable[[Target], str]], Callable[[Target], str]]:
    """Register a function as an attack of its own name, with ``-`` in the place of ``_``."""

    def register(run: Callable[[Target], str]) -> Callable[[Target], str]:
        add(Attack(run.__name__.replace("_", "-"), listener, does, run, held_by, in_slice, few_files))
        return run

    return register


def add(one: Attack) -> None:
    """Register it. Raises ValueError for a name that is taken."""
    if one.name in REGISTER:
        raise ValueError(f"there are two attacks of the name {one.name}")
    REGISTER[one.name] = one
