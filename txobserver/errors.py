"""The root of the exceptions that users of txha may catch; each floor defines its own below it (docs/errors.md)."""

from __future__ import annotations


class Error(Exception):
    """Never raised itself: the base of every exception that txha defines for its users.

    Wrong use of the API raises Python's own exceptions besides: TypeError, ValueError, RuntimeError.
    """
