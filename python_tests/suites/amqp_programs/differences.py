"""Where txha answers otherwise than RabbitMQ on purpose, each by a name and with a reason; docs/differences.md
lists the same. Whatever is not here is a fault.

A difference is either in lines, which are made alike before they are compared, or it is not drawn by the generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

Answers = dict[str, list[str]]


class Difference(NamedTuple):
    """``pattern`` in a line becomes ``alike`` in what either broker answers; without a pattern it is not drawn.

    ``ends``: what such a line leads to differs too, so what comes behind its step is not compared; ``alone``: RabbitMQ
    says it, and txha does not. ``only``: the RabbitMQ whose answers differ from the others', if it is a difference of
    RabbitMQ's versions.
    """

    name: str
    reason: str
    pattern: str = ""
    alike: str | Callable[[re.Match[str]], str] = ""
    only: str = ""
    ends: bool = False
    alone: bool = False


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
        "headers-by-name",
        "RabbitMQ 4.0 gives a message's headers in the order of their names; RabbitMQ 3.10 and txha as they were sent.",
        r"headers=\[([\da-f,]+)\]",
        lambda found: ",".join(sorted(found[1].split(","))),
        only="RabbitMQ 4.0",
    ),
    Difference(
        "unknown-exchange-types",
        "RabbitMQ 4.0 refuses one with 406 and ends the channel; RabbitMQ 3.10 and txha with 503, and the connection.",
        r"unknown exchange type '",
        only="RabbitMQ 4.0",
        ends=True,
    ),
    Difference(
        "both-ends-missing",
        "If both ends of a binding are missing, RabbitMQ 4.0 names the destination; RabbitMQ 3.10 and txha the source.",
        r"NOT_FOUND - no (?:queue|exchange) '[^']*' in vhost '/'. "
        r"(class=50 method=(?:20|50)|class=40 method=(?:30|40))",
        r"NOT_FOUND - no such end \1",
        only="RabbitMQ 4.0",
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
        "a-commit-behind-a-deletion",
        "RabbitMQ may refuse tx.commit (406) for a message to a queue that was deleted right before, while the queue's "
        "process ends; here the message has no queue then, and the commit succeeds.",
        r"partial tx completion",
        ends=True,
        alone=True,
    ),
    Difference(
        "unknown-methods",
        "RabbitMQ drops the connection without a word; here connection.close says 503 or 540.",
    ),
    Difference(
        "unsupported",
        "What RabbitMQ acts on and txha does not is refused (406) behind RabbitMQ's own checks. The suite plays against"
        " a txha with unsupported = warn, which accepts it.",
    ),
    Difference(
        "fractions-in-bindings",
        "In a binding of a headers exchange RabbitMQ 3.10 takes 1 and 1.0 as the same; RabbitMQ 4.0 and txha do not.",
    ),
    Difference(
        "gets-in-a-channel-s-limit",
        "When basic.qos first limits a whole channel, RabbitMQ counts what basic.get holds there, and goes on counting "
        "it when it is acknowledged; here only what consumers hold counts.",
    ),
    Difference(
        "queues-behind-a-transaction-s-publish",
        "RabbitMQ 3.10 looks at the commit for the queue that a transaction has published to by the default exchange, "
        "so one declared behind the publish gets the message; RabbitMQ 4.0 and txha look when it is published.",
    ),
    Difference(
        "quorum-queues",
        "Every durable queue is replicated, so x-queue-type quorum is a durable queue like any other.",
    ),
)
_IN_LINES = [each for each in DIFFERENCES if each.pattern and not each.ends]
_PATTERNS = [(each.only, re.compile(each.pattern), each.alike) for each in _IN_LINES]
_ENDS = [(each.only, each.alone, re.compile(each.pattern)) for each in DIFFERENCES if each.ends]


def _alike(text: str, product: str) -> str:
    for only, pattern, instead in _PATTERNS:
        if only in ("", product):
            text = pattern.sub(instead, text)
    return text


def alike(answers: list[Answers], product: str) -> list[Answers]:
    """With all that may differ made the same, for a comparison with this RabbitMQ."""
    return [{name: [_alike(text, product) for text in lines] for name, lines in each.items()} for each in answers]


def ends(wanted: Answers, got: Answers, product: str) -> bool:
    """Whether what comes behind this step is not compared with this RabbitMQ, nor the step itself."""
    patterns = [(alone, pattern) for only, alone, pattern in _ENDS if only in ("", product)]
    return any(_says(wanted, pattern) and (alone or _says(got, pattern)) for alone, pattern in patterns)


def _says(answers: Answers, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for lines in answers.values() for text in lines)
