"""What is remembered of the properties that a client has sent, so that it costs a bounded part of the memory."""

from __future__ import annotations

from broker_plugin.amqp.protocol.properties import LONGEST_REMEMBERED, REMEMBERED_BYTES, PropertyCheck
from broker_plugin.embedded.unsupported import Unsupported


def identified(size: int, number: int = 0) -> bytes:
    """Properties of so many bytes, whose message-id is this number."""
    head = b"\xe0\x80"  # content-type, content-encoding, headers and message-id
    text = b"%08d" % number
    rest = size - 2 - 1 - 1 - 4 - 1 - len(text)
    name, value = b"x", bytes(max(0, rest - 7))
    table = b"\x01" + name + b"S" + len(value).to_bytes(4, "big") + value if rest else b""
    return head + b"\x00\x00" + len(table).to_bytes(4, "big") + table + bytes([len(text)]) + text


def test_few_are_remembered_and_counted_with_what_they_take() -> None:
    check = PropertyCheck("guest", Unsupported())
    most = 0
    for number in range(1000):
        check(identified(17, number), "")
        most = max(most, len(check.passed))
        assert check.bytes == sum(len(each) + REMEMBERED_BYTES for each in check.passed)
    assert most == 256 and 0 < len(check.passed) < 256
    check.forget()
    assert not check.passed and not check.bytes


def test_long_ones_are_not_remembered() -> None:
    check = PropertyCheck("guest", Unsupported())
    for size in (LONGEST_REMEMBERED, LONGEST_REMEMBERED + 1):
        properties = identified(size)
        assert len(properties) == size
        check(properties, "")
        assert (properties in check.passed) == (size == LONGEST_REMEMBERED)
