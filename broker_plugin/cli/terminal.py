"""What a command shows at a terminal: no text of others' is markup there, a line end, or a sequence to be obeyed."""

from __future__ import annotations

from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from txobserver.printable import printable


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
