"""Where txha answers otherwise than RabbitMQ 3.10 on purpose, each by a name and with a reason; docs/differences.md
lists the same. Whatever is not here is a fault.

A difference is either in lines, which are made alike before they are compared, or it is not drawn by the generator.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Answers = dict[str, list[str]]


class Difference(NamedTuple):
    """``pattern`` in a line becomes ``alike`` in what either broker answers; without a pattern it is not drawn."""

    name: str
    reason: str
    pattern: str = ""
    alike: str = ""


DIFFERENCES = (
    Difference(
        "numbers-have-one-type",
        "RabbitMQ tells sizes of numbers apart in its texts; here every whole number is of one type.",
        r"(type[, ]'?)(byte|unsignedbyte|short|unsignedshort|signedint|unsignedint|long)\b",
        r"\1number",
    ),
    Difference(
        "unreadable-octets",
        "Which octets cannot be read, and of which method, is told in each broker's own words.",
        r"(connection\.close code=50[125]) text=.(FRAME_ERROR|SYNTAX_ERROR|UNEXPECTED_FRAME) - "
        r"(cannot decode|Malformed UTF-8|type |a frame of).*",
        r"\1 of octets that cannot be read",
    ),
    Difference(
        "names-that-are-no-text",
        "A text shows the octets of such a name with replacement characters, since a reply text is text.",
        r"(NOT_FOUND - no exchange )'[^']*[^\x00-\x7f'][^']*'",
        r"\1 of octets",
    ),
    Difference(
        "a-number-before-its-close-ok",
        "RabbitMQ may refuse channel.open (504) for a number whose channel.close it has not answered yet; here all that"
        " came before is carried out first, so the number is free.",
    ),
    Difference(
        "what-follows-an-error",
        "Behind an error that ends the channel RabbitMQ may still end the connection for a frame that must not come, or"
        " end the channel once more for a method with an empty queue name; here everything up to close-ok is ignored.",
    ),
    Difference(
        "requests-behind-a-commit",
        "RabbitMQ may end the connection (504) for what comes behind a tx.commit that is not answered yet; here that"
        " waits.",
    ),
    Difference(
        "unknown-methods",
        "RabbitMQ drops the connection without a word; here connection.close says 503 or 540.",
    ),
    Difference(
        "arguments-without-effect",
        "Expiry, maximum length, priorities, dead-lettering and single active consumers are checked and kept, and "
        "have no effect yet.",
    ),
    Difference(
        "quorum-queues",
        "Every durable queue is replicated, so x-queue-type quorum is a durable queue like any other.",
    ),
)
_PATTERNS = [(re.compile(each.pattern), each.alike) for each in DIFFERENCES if each.pattern]


def _alike(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def alike(answers: list[Answers]) -> list[Answers]:
    """With all that may differ made the same."""
    return [{name: [_alike(text) for text in lines] for name, lines in each.items()} for each in answers]
