"""The login of a client that is passed on, read in whatever pieces it comes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, encode, frame, heartbeat

from broker_plugin.amqp.protocol.passed_login import LONGEST_ANSWER, PassedAnswers, PassedLogin
from tests.broker_plugin.amqp.peer import HEADER

ELSEWHERE = "192.0.2.7"


def login(user: str, mechanism: str = "PLAIN") -> bytes:
    response = f"\0{user}\0guest"
    if mechanism == "AMQPLAIN":
        response = encode.field_table({"LOGIN": user, "PASSWORD": "guest"})[4:].decode()
    method = commands.Connection.StartOk({}, mechanism, response, "en_US")
    return frame.marshal(method, 0)


def played(pieces: list[bytes], address: str = ELSEWHERE) -> tuple[bool, bytes]:
    """Whether it was refused, and what was passed on before."""
    passed = b""
    found = PassedLogin(address)
    for piece in pieces:
        if not found.passed and found.read(piece) is not None:
            return True, passed
        passed += piece
    return False, passed


BEATS = frame.marshal(heartbeat.Heartbeat(), 0) * 3
GUEST = HEADER + BEATS + login("guest") + frame.marshal(commands.Connection.TuneOk(0, 4096, 0), 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, len(GUEST) - 1), max_size=12))
def test_guest_is_never_passed_on_whole(cuts: list[int]) -> None:
    edges = sorted({0, *cuts, len(GUEST)})
    refused, passed = played([GUEST[a:b] for a, b in pairwise(edges)])
    assert refused and len(passed) < len(HEADER + BEATS + login("guest"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_in_either_mechanism(mechanism: str) -> None:
    assert played([HEADER, login("guest", mechanism)]) == (True, HEADER)
    assert played([HEADER, login("alice", mechanism), login("guest", mechanism)])[0] is False


def test_behind_a_method_of_another_channel() -> None:
    """A primary refuses that; the login is judged here all the same, whatever a host broker makes of it."""
    data = HEADER + frame.marshal(commands.Channel.Open(), 1)
    assert played([data, login("guest")]) == (True, data)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_from_loopback_it_is(address: str) -> None:
    assert played([GUEST], address) == (False, GUEST)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        HEADER + frame.marshal(commands.Connection.Close(200, "", 0, 0), 0),
        HEADER + b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0b\xce",
        HEADER + b"\x01\x00\x00\xff\xff\xff\xff" + bytes(20),
    ],
    ids=["no AMQP", "another method", "one that cannot be read", "a frame that is too large"],
)
def test_what_the_primary_refuses_is_left_to_it(data: bytes) -> None:
    found = PassedLogin(ELSEWHERE)
    assert found.read(data) is None and found.passed


@given(st.binary(max_size=300))
def test_any_octets_are_read(data: bytes) -> None:
    PassedLogin(ELSEWHERE).read(data)
    PassedLogin(ELSEWHERE).read(HEADER + data)


START = frame.marshal(commands.Connection.Start(0, 9, {"product": "x" * 300}, "PLAIN", "en_US"), 0)
TUNE = frame.marshal(commands.Connection.Tune(2047, 4096, 60), 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, len(START + BEATS + TUNE) - 1), max_size=12))
def test_a_client_has_logged_in_with_the_answer_that_says_so_and_not_before(cuts: list[int]) -> None:
    answers, data = PassedAnswers(), START + BEATS + TUNE
    edges = sorted({0, *cuts, len(data)})
    for a, b in pairwise(edges):
        answers.read(data[a:b])
        assert not answers.logged_in or b > len(START + BEATS)
    assert answers.logged_in and answers._partial == b""


@pytest.mark.parametrize(
    "data",
    [
        START + frame.marshal(commands.Connection.Close(403, "TUNE", 0, 0), 0),
        HEADER,
        START + frame.marshal(commands.Connection.Tune(0, 0, 0), 1),
        START + frame.marshal(commands.Connection.Blocked("\x00\x0a\x00\x1e"), 0),
    ],
    ids=["refused", "no AMQP", "on another channel", "in another method"],
)
def test_other_answers_are_no_login(data: bytes) -> None:
    answers = PassedAnswers()
    answers.read(data)
    assert not answers.logged_in


def test_a_long_answer_is_not_kept() -> None:
    answers = PassedAnswers()
    answers.read(b"\x01\x00\x00" + (LONGEST_ANSWER + 1).to_bytes(4, "big") + bytes(100))
    assert answers.logged_in and answers._partial == b""


@given(st.binary(max_size=300))
def test_any_answer_is_read(data: bytes) -> None:
    PassedAnswers().read(data)
