"""HTML pages that need nothing beside them, by Jinja2: every value is escaped, unless it is ``Markup`` by its type.

A text is shown in one line, with what cannot be printed as escapes (``txobserver.printable``).

The templates stand in ``templates``, beside this file. A name that a template asks for and is not given is an error.
"""

from __future__ import annotations

import io
from datetime import datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from txobserver.printable import printable


def render(template: str, **values: object) -> str:
    """The page. In it, None is an empty cell and a time has hours, minutes and seconds."""
    return _PAGES.get_template(template).render(values)


def svg(figure: Figure) -> Markup:
    """A plot as it can stand in a page: without the head of an XML file. Texts in it are escaped by matplotlib."""
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return Markup(text.getvalue()[text.getvalue().index("<svg") :])


def in_plot(name: str) -> str:
    """A name as a text of a plot: matplotlib would take what stands between two dollars for a formula."""
    return printable(name).replace("$", r"\$")


def _shown(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return f"{value:%H:%M:%S}" if isinstance(value, datetime) else value


_PAGES = Environment(
    loader=PackageLoader(__name__),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
