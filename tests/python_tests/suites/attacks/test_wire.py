"""The attacker's connection, against a socket that says what a test wants."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.wire import Refused, Wire, message, method


class Other:
    """The other end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.wire = Wire(self._listener.getsockname()[1])
        self.end, _ = self._listener.accept()

    def close(self) -> None:
        """Both."""
        for each in (self.wire, self.end, self._listener):
            each.close()


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.close()


CLOSE = method(0, "connection.close", code=505, text="UNEXPECTED_FRAME - expected content header, and more")


def test_the_outcome_is_the_error_with_its_code(other: Other) -> None:
    other.end.sendall(method(1, "basic.qos-ok") + CLOSE)
    assert other.wire.outcome() == "connection closed: 505 UNEXPECTED_FRAME"


def test_the_outcome_of_an_end_without_a_word(other: Other) -> None:
    other.end.close()
    assert other.wire.outcome() == "closed"


def test_the_outcome_of_silence(other: Other) -> None:
    assert other.wire.outcome(0.01) == "goes on"


def test_what_is_expected_is_waited_for_behind_others_and_in_pieces(other: Other) -> None:
    said = amqp.frame(8, 0, b"") + method(1, "basic.qos-ok") + method(1, "queue.declare-ok", queue="q", messages=7)
    other.end.sendall(said[:30])
    late = threading.Timer(0.01, lambda: other.end.sendall(said[30:]))
    late.start()
    assert other.wire.expect("queue.declare-ok")["messages"] == 7 and other.wire.counts["basic.qos-ok"] == 1
    late.join()


def test_what_is_expected_and_refused(other: Other) -> None:
    other.end.sendall(CLOSE)
    with pytest.raises(Refused, match="505"):
        other.wire.expect("queue.declare-ok")


def test_to_send_to_one_that_reads_no_more_gives_up(other: Other) -> None:
    assert other.wire.pour(bytes(1 << 22), 0.2) < 50


def test_a_long_body_goes_out_in_several_frames() -> None:
    frames = message(1, "", "q", b"x" * 25, most=10)
    assert frames.count(amqp.frame(amqp.BODY, 1, b"x" * 10)) == 2
    assert frames.endswith(amqp.frame(amqp.BODY, 1, b"x" * 5))
