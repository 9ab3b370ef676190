"""Why a step of configuration was not carried out where the stream has it."""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why a step was not carried out where it was applied."""

    NOT_EMPTY = "not empty"
    IN_USE = "in use"
    NO_SOURCE = "no source"
    NO_DESTINATION = "no destination"
    GONE = "gone"
    EXISTS = "exists"
    CHANGED = "changed meanwhile"
    GOING = "being deleted"
    NO_VHOST = "no virtual host"
    TOO_MANY = "too many"
