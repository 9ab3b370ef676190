"""What a command shows at a terminal: no text of others' is markup there, a line end, or a sequence to be obeyed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from txobserver.printable import printable

OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EIO, errno.EPIPE, errno.EFBIG, errno.EDQUOT})
"""What writing to a file without a name ends with: no room, a device that fails, a reader that has gone"""


class PlainConsole(Console):
    """A console on which each text, also each cell and title of a table, is what it is: without markup, emoji, control.

    ``width`` in characters; without it, that of the terminal.
    """

    def __init__(self, width: int | None = None, stderr: bool = False) -> None:
        super().__init__(width=width, stderr=stderr, emoji=False, markup=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """As rich makes a text of a string, wherever one stands."""
        return super().render_str(printable(text), **{**options, "emoji": False, "markup": False})


def say(line: str, beside: bool = False) -> None:
    """A line of output, or of what is told to the person beside the output."""
    typer.echo(printable(line), err=beside)


@contextmanager
def whole_output() -> Iterator[None]:
    """All that is said within has been written at the end. Where it cannot be, one sentence says so, and the status
    is 1: what the command was to do may be done. Who has closed the pipe has read what it wanted, and is told nothing.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_ERRORS:
            raise
        _write_no_more()
        if error.errno != errno.EPIPE:
            say(f"txha: the output cannot be written: {error.strerror}", beside=True)
        raise SystemExit(1) from None


def _write_no_more() -> None:
    """The interpreter flushes standard output once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    os.close(nowhere)
