"""What is nested too deep is refused by every decoder that reads what others have sent, and ends none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.reader.log_wire import decode_answer, decode_greeting, decode_question

DEEP = b"\x91" * 3900 + b"\xc0"
EXTRA_OF = {
    "a reader's greeting": (decode_greeting, b"\x94\x64\x01\xa1c"),
    "a question": (decode_question, b"\x92\x65"),
    "an answer": (decode_answer, b"\x94\x69\xa1r\xc2"),
}
"""Each with one field more than there is: a later version may have one, so it is read over."""


@pytest.mark.parametrize("name", EXTRA_OF)
def test_a_field_that_is_nested_too_deep(name: str) -> None:
    decode: Callable[[bytes], Any]
    decode, message = EXTRA_OF[name]
    assert decode(message + b"\x91\xc0") == decode(bytes((message[0] - 1,)) + message[1:])
    with pytest.raises(ValueError, match="nested too deep"):
        decode(message + DEEP)


@pytest.mark.parametrize("name", EXTRA_OF)
def test_nothing_but_nesting(name: str) -> None:
    with pytest.raises(ValueError):
        EXTRA_OF[name][0](DEEP)
