"""What a policy says, and of what: RabbitMQ's policies and operator policies, as far as they have an effect.

An *operator policy* stands beside the policies, not among them: of what both say of a queue, the smaller holds.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
"""Where an exchange sends what no binding of it fits: the name of an exchange"""
EXPIRES: Final = "expires"
"""A queue goes when it has not been used for so many milliseconds"""
EXCHANGES: Final = "exchanges"
QUEUES: Final = "queues"
ALL: Final = "all"
APPLIES_TO: Final = (ALL, EXCHANGES, QUEUES)
"""What a policy is of"""
KEYS_OF: Final = {EXCHANGES: (ALTERNATE_EXCHANGE,), QUEUES: (EXPIRES,), ALL: (ALTERNATE_EXCHANGE, EXPIRES)}
"""What can be said of each"""
OPERATORS_SAY: Final = (EXPIRES,)
"""What an operator policy can say: RabbitMQ has none of exchanges"""
OPERATORS_APPLY_TO: Final = (ALL, QUEUES)
"""What an operator policy is of: of all that there is, only queues"""
LONGEST_PATTERN: Final = 1024
"""Characters of a pattern"""
LONGEST_DEFINITION: Final = 4096
"""Bytes of what a policy says, encoded"""
LARGEST_PRIORITY: Final = 2**31 - 1
"""Either way"""
LONGEST_EXPIRY: Final = 2**32 - 1
"""Milliseconds; RabbitMQ's greatest time"""

Definition = dict[str, str | int]


class Policy(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, tag=5):
    """What holds of all exchanges, all queues, or both, whose names fit a pattern, unless one with a higher priority
    is of them as well."""

    pattern: str
    priority: int
    definition: Definition
    apply_to: str = EXCHANGES


def check_policy(policy: Policy, of_operators: bool) -> None:
    """Whether there can be such a policy, or operator policy. Raises ValueError, with a sentence that says why not."""
    if len(policy.pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern has at most {LONGEST_PATTERN} characters")
    if not -LARGEST_PRIORITY <= policy.priority <= LARGEST_PRIORITY:
        raise ValueError(f"a priority is a whole number from {-LARGEST_PRIORITY} to {LARGEST_PRIORITY}")
    kinds = OPERATORS_APPLY_TO if of_operators else APPLIES_TO
    if policy.apply_to not in kinds:
        raise ValueError(f"apply-to is {' or '.join(kinds)}: nothing that can be said of others has an effect here")
    _check_definition(policy.definition, policy.apply_to, of_operators)
    if len(msgspec.msgpack.encode(policy.definition)) > LONGEST_DEFINITION:
        raise ValueError(f"a policy says at most {LONGEST_DEFINITION} bytes")


def _check_definition(definition: dict[str, Any], apply_to: str, of_operators: bool) -> None:
    known = OPERATORS_SAY if of_operators else KEYS_OF[apply_to]
    if not definition:
        raise ValueError(f"a definition is an object with {' or '.join(known)}")
    if unknown := sorted(definition.keys() - set(known)):
        if unknown[0] in KEYS_OF[ALL] and not of_operators:
            raise ValueError(f"{unknown[0]!r} says nothing of {apply_to}: give another apply-to, or leave it out")
        raise ValueError(f"{unknown[0]!r} would have no effect here: leave it out")
    if ALTERNATE_EXCHANGE in definition and not isinstance(definition[ALTERNATE_EXCHANGE], str):
        raise ValueError(f"{ALTERNATE_EXCHANGE} is the name of an exchange")
    expires = definition.get(EXPIRES, 1)
    if type(expires) is not int or not 1 <= expires <= LONGEST_EXPIRY:
        raise ValueError(f"{EXPIRES} is a whole number of milliseconds, from 1 to {LONGEST_EXPIRY}")
