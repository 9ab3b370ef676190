"""Errors as AMQP clients see them: a reply code and RabbitMQ's reply text."""

from __future__ import annotations

from collections.abc import Collection

from txobserver.configuration import Refusal
from txobserver.vhosts import parts_of

NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    409: "ILLEGAL_STATE",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
    542: "INVALID_ARGUMENT",
}
SOFT = frozenset({311, 403, 404, 405, 406})
"""Codes that end only the channel (AMQP 0-9-1, "Constants"). In class dtx every code does."""


class AmqpError(Exception):
    """What a client did cannot be done. ``hard`` errors end the connection, the others only the channel."""

    def __init__(self, code: int, text: str, hard: bool | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.hard = code not in SOFT if hard is None else hard

    @property
    def reply_text(self) -> str:
        """The text as RabbitMQ writes it: ``NAME - text``."""
        return f"{NAMES[self.code]} - {self.text}"


def located(kind: str, name: str) -> str:
    """How RabbitMQ names an exchange or queue in its texts. ``name`` is the full one."""
    vhost, local = parts_of(name)
    return f"{kind} '{local}' in vhost '{vhost}'"


def not_found(kind: str, name: str) -> AmqpError:
    """404 for an exchange or queue that is not there."""
    return AmqpError(404, f"no {located(kind, name)}")


UNANSWERED_NOT_DONE = "unanswered=not-done"
UNANSWERED_UNKNOWN = "unanswered=unknown"
UNANSWERED_UNKNOWN_ON = "unanswered=unknown-on:"
"""What the text of a connection that is closed since its node serves no more says for programs: what became of all that
was asked on it and not answered. The other words are for people."""
LONGEST_LIST = 70
"""Characters of the numbers of channels that are named; of more it is said that all are unknown."""
LONGEST_REASON = 110
"""Characters, so that the word behind it has room in a text of AMQP."""


class Forced(AmqpError):
    """320 for a connection whose node serves clients no more, for this ``reason``.

    ``undecided``: something that has begun for it has no answer, so that its outcome is not known to the client.
    Otherwise nothing that was not answered was done, nor will it be; but on these channels it may have been.
    """

    def __init__(self, reason: str, undecided: bool, but: Collection[int] = ()) -> None:
        listed = ",".join(map(str, sorted(but)))
        undecided = undecided or len(listed) > LONGEST_LIST
        if but and not undecided:
            word = f"{UNANSWERED_UNKNOWN_ON}{listed}: elsewhere it was not done"
        elif undecided:
            word = f"{UNANSWERED_UNKNOWN}: what was to be answered may have been done or not"
        else:
            word = f"{UNANSWERED_NOT_DONE}: what was to be answered was not done, and open transactions are rolled back"
        super().__init__(320, f"{reason[:LONGEST_REASON]}; {word}")
        self.reason = reason
        self.undecided = undecided


def user_deleted(user: str) -> AmqpError:
    """320 for the connections of a user that is deleted."""
    return AmqpError(320, f"user '{user}' is deleted")


def vhost_deleted(vhost: str) -> AmqpError:
    """320 for the connections to a virtual host that is deleted."""
    return AmqpError(320, f"vhost '{vhost}' is deleted")


def locked(queue: str) -> AmqpError:
    """405 for an exclusive queue of another connection."""
    return AmqpError(
        405,
        f"cannot obtain exclusive access to locked {located('queue', queue)}. It could be originally declared on"
        " another connection or the exclusive property value does not match that of the original declaration.",
    )


def refused(text: str) -> AmqpError:
    """403."""
    return AmqpError(403, text)


def precondition(text: str) -> AmqpError:
    """406."""
    return AmqpError(406, text)


def not_configured(kind: str, name: str, error: str) -> AmqpError:
    """The answer to a client whose step of configuration was not carried out: 404 or 406."""
    if error in (Refusal.NO_SOURCE, Refusal.NO_DESTINATION, Refusal.GONE):
        return not_found(kind, name)
    return precondition(f"{located(kind, name)} {error}" if isinstance(error, Refusal) else error)


_TYPES: dict[type, str] = {
    bool: "bool",
    int: "signedint",
    float: "double",
    str: "longstr",
    bytes: "binary",
    dict: "table",
    list: "array",
    type(None): "void",
}


def dtx_error(code: int, text: str) -> AmqpError:
    """An error of class dtx: AMQP 0-10 gives the code, and only the channel ends, whatever the code is."""
    return AmqpError(code, text, hard=False)


def type_name(value: object) -> str:
    """How RabbitMQ calls the type of an argument. (It tells the sizes of numbers apart; here they are one.)"""
    return _TYPES.get(type(value), "timestamp")
