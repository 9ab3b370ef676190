"""Introductions: a node tells another one where a client comes from, and only a node of the cluster can."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.amqp.protocol.introductions import (
    ASK,
    LONGEST_CERTIFIED,
    LONGEST_LINE,
    Beginning,
    Carrier,
    ClientWay,
    Introduced,
    Introducer,
    Introduction,
    IntroductionRefused,
    Introductions,
    Reception,
    introduction_key,
)

KEY = introduction_key(b"a secret", "c1")
OTHER = introduction_key(b"another secret", "c1")
NONCE, LATER = b"0" * 32, b"f" * 32
HEADER = b"AMQP\x00\x00\x09\x01"


def reception(*keys: bytes, node: str = "p", nonce: bytes = NONCE) -> Reception:
    return Reception(Introductions(node, keys or [KEY]), lambda: nonce)


def told(line: bytes, node: str = "p", nonce: bytes = NONCE, keys: tuple[bytes, ...] = (KEY,)) -> Introduced:
    return Introductions(node, keys).read(line, nonce)


def refused(line: bytes, node: str = "p", nonce: bytes = NONCE, keys: tuple[bytes, ...] = (KEY,)) -> str:
    with pytest.raises(IntroductionRefused) as found:
        told(line, node, nonce, keys)
    return str(found.value)


def test_a_client_is_introduced_by_its_address() -> None:
    end, introduction = reception(), Introduction(Introducer("node-2", KEY), "p", "192.0.2.1", 4711)
    challenge = end.take(ASK)
    assert end.asked and not end.over and challenge.introduced is None and challenge.rest == b""
    line = introduction.take(challenge.answer)
    assert line is not None
    assert end.take(line + HEADER) == Beginning(b"", Introduced("node-2", "192.0.2.1", 4711), HEADER)
    assert end.over and not end.asked and end.so_far == b""


def test_all_of_it_may_come_in_pieces() -> None:
    end, introduction = reception(), Introduction(Introducer("n", KEY), "p", "::1", 1)
    answers = b"".join(end.take(ASK[at : at + 1]).answer for at in range(len(ASK)))
    lines = [introduction.take(answers[at : at + 1]) for at in range(len(answers))]
    line = lines.pop()
    assert line is not None and not any(lines)
    taken = [end.take(line[at : at + 1]) for at in range(len(line))]
    assert taken.pop().introduced == Introduced("n", "::1", 1) and all(each == Beginning() for each in taken)


@pytest.mark.parametrize("said", [HEADER, b"", b"A", b"TXHA 1 x", b"GET / HTTP/1.0\r\n\r\n", b"TXHO"])
def test_what_is_no_introduction_is_for_the_broker(said: bytes) -> None:
    """An introduction of a client's own making too: it has not been asked for, and is no header of AMQP."""
    end = reception()
    rest = b"".join(end.take(said[at : at + 1]).rest for at in range(len(said)))
    assert rest == said and end.over is bool(said) and not end.asked


def test_a_beginning_that_may_become_one_is_kept() -> None:
    end = reception()
    assert end.take(b"TXHA 1 ") == Beginning() and end.so_far == b"TXHA 1 " and not end.over and not end.asked


def test_names_and_zones_of_addresses_are_made_plain() -> None:
    line = Introducer("node 2 ä", KEY).line(NONCE, "p 1", "fe80::1%eth0", 1)
    assert told(line, "p 1") == Introduced("node 2 ä".encode().hex(), "fe80::1", 1)


def test_a_line_of_another_secret_is_refused() -> None:
    line = Introducer("n", OTHER).line(NONCE, "p", "192.0.2.1", 1)
    assert "not proved" in refused(line) and "not proved" in refused(line, keys=())
    assert told(line, keys=(KEY, OTHER)).host == "192.0.2.1", "while one secret takes the other's place"
    assert introduction_key(b"a secret", "c2") != KEY, "another cluster of the same secret"


def test_a_line_is_of_one_connection() -> None:
    """What was captured is worth nothing on another one, also if it was never read on its own."""
    line = Introducer("n", KEY).line(NONCE, "p", "192.0.2.1", 1)
    assert told(line)
    assert "not proved" in refused(line, nonce=LATER)


def test_a_line_is_for_one_node() -> None:
    """Who listens in the place of node q, and asks with the nonce of p, gets a line that p does not take."""
    line = Introducer("n", KEY).line(NONCE, "q", "192.0.2.1", 1)
    assert "for node q" in refused(line) and told(line, "q")


def test_a_client_that_introduces_itself_is_refused() -> None:
    end = reception()
    end.take(ASK)
    with pytest.raises(IntroductionRefused, match="not proved"):
        end.take(Introducer("n", introduction_key(b"guess", "c1")).line(NONCE, "p", "::1", 1))


def test_a_broker_without_a_secret_believes_none() -> None:
    with pytest.raises(IntroductionRefused, match="believed"):
        Reception(Introductions("p", ()), lambda: NONCE).take(ASK)


def test_what_has_no_end_is_refused() -> None:
    end, introduction = reception(), Introduction(Introducer("n", KEY), "p", "::1", 1)
    end.take(ASK)
    with pytest.raises(IntroductionRefused, match="no end"):
        end.take(b"x" * LONGEST_LINE)
    with pytest.raises(IntroductionRefused, match="no end"):
        introduction.take(b"x" * LONGEST_LINE)


@pytest.mark.parametrize("said", [b"AMQP\x00\x00\x09\x01\r\n", b"TXHA 1 0\r\n", b"TXHA 1 " + NONCE + b"\r\nmore"])
def test_a_primary_that_asks_for_no_introduction_is_told_none(said: bytes) -> None:
    """It says what a primary does not say, or goes on where it should wait."""
    with pytest.raises(IntroductionRefused, match="asks for no"):
        Introduction(Introducer("n", KEY), "p", "::1", 1).take(said)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_changed_line_is_believed(at: int, octet: int) -> None:
    line = Introducer("node-2", KEY).line(NONCE, "p", "192.0.2.17", 40_000)
    changed = bytearray(line)
    changed[at % len(line)] = octet
    if changed != line:
        refused(bytes(changed))


@given(st.binary(max_size=300))
def test_any_octets_are_read(data: bytes) -> None:
    end = reception()
    try:
        taken = end.take(data)
        assert taken.rest == data or not end.over
        end.take(data)
    except IntroductionRefused:
        pass


# -- on encrypted connections

ENCRYPTED = Carrier(True)
CERTIFIED = Introducer("n", None)


def way_line(way: ClientWay, introducer: Introducer | None = None) -> bytes:
    return (introducer or Introducer("n", KEY)).line(NONCE, "p", "192.0.2.1", 1, way)


def refused_by(line: bytes, carrier: Carrier, introductions: Introductions | None = None) -> str:
    with pytest.raises(IntroductionRefused) as found:
        (introductions or Introductions("p", [KEY])).read(line, NONCE, carrier)
    return str(found.value)


@pytest.mark.parametrize("name", [None, "bob", "-", "%2D", "CN=bob,O=a b", "Zoë\r\n", "x" * LONGEST_CERTIFIED])
@pytest.mark.parametrize("carrier", [ENCRYPTED, Carrier(True, "n")])
def test_how_a_client_has_come_is_told_as_it_is(name: str | None, carrier: Carrier) -> None:
    end = Reception(Introductions("p", [KEY]), lambda: NONCE, carrier)
    introduction = Introduction(Introducer("n", KEY), "p", "192.0.2.1", 1, ClientWay(True, name))
    line = introduction.take(end.take(ASK).answer)
    assert line is not None and len(line) <= LONGEST_LINE
    assert end.take(line + HEADER) == Beginning(b"", Introduced("n", "192.0.2.1", 1, ClientWay(True, name)), HEADER)


def test_the_longest_line_is_read() -> None:
    longest = Introducer("n" * 255, KEY).line(NONCE, "p" * 255, "h" * 64, 65535, ClientWay(True, "x" * 1024))
    assert len(longest) < LONGEST_LINE
    assert Introductions("p" * 255, [KEY]).read(longest, NONCE, ENCRYPTED).way.certified == "x" * 1024


@pytest.mark.parametrize("name", ["x" * (LONGEST_CERTIFIED + 1), "ä" * 171, ""])
def test_a_name_that_no_user_can_have_is_not_told(name: str) -> None:
    found = Introductions("p", [KEY]).read(way_line(ClientWay(True, name)), NONCE, ENCRYPTED)
    assert found.way == ClientWay(True)


def test_one_that_came_in_clear_has_no_name() -> None:
    assert Introductions("p", [KEY]).read(way_line(ClientWay()), NONCE, ENCRYPTED).way == ClientWay()
    forged = way_line(ClientWay(False, "bob"))
    assert b" clear bob " in forged and "none that a node makes" in refused_by(forged, ENCRYPTED)


@pytest.mark.parametrize("name", [b"%62ob", b"b%6Fb", b"a/b", b"%ff", b"%2d"])
def test_a_name_has_one_form(name: bytes) -> None:
    text = b"TXHA 2 n p 192.0.2.1 1 tls " + name + b" "
    line = text + hmac.digest(KEY, NONCE + b" " + text, "sha256").hex().encode() + b"\r\n"
    assert "none that a node makes" in refused_by(line, ENCRYPTED)


def test_a_way_is_believed_on_an_encrypted_connection_alone() -> None:
    assert "this is none" in refused_by(way_line(ClientWay(True, "bob")), Carrier())
    assert "this is none" in refused_by(way_line(ClientWay()), Carrier())


def test_a_line_without_a_way_says_nothing_of_it() -> None:
    """Not even on an encrypted connection: an earlier version says nothing of how its clients come."""
    line = Introducer("n", KEY).line(NONCE, "p", "192.0.2.1", 1)
    assert Introductions("p", [KEY]).read(line, NONCE, Carrier(True, "n")).way == ClientWay(False, None)


def test_the_certificate_is_that_of_the_node_that_introduces() -> None:
    line = way_line(ClientWay(True, "bob"))
    assert "that of node m" in refused_by(line, Carrier(True, "m"))
    assert Introductions("p", [KEY]).read(line, NONCE, Carrier(True, "n")).node == "n"


def test_a_certificate_stands_in_for_the_secret_where_there_is_none() -> None:
    line, none = way_line(ClientWay(True, "bob"), CERTIFIED), Introductions("p", (), certificates=True)
    assert none.believed and CERTIFIED.by_certificate
    assert none.read(line, NONCE, Carrier(True, "n")).way.certified == "bob"
    assert "the certificate of a node" in refused_by(line, ENCRYPTED, none), "a client, whatever its certificate"
    assert "that of node m" in refused_by(line, Carrier(True, "m"), none)
    assert "the certificate of a node" in refused_by(line, Carrier(False, "n"), none)
    assert "the certificate of a node" in refused_by(line, Carrier(True, "n")), "there is a secret"
    assert "secret of this cluster" in refused_by(way_line(ClientWay(True, "bob")), Carrier(True, "n"), none)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_changed_line_with_a_way_is_believed(at: int, octet: int) -> None:
    line = bytearray(way_line(ClientWay(True, "bob")))
    same = line[at % len(line)] == octet
    line[at % len(line)] = octet
    if not same:
        refused_by(bytes(line), ENCRYPTED)
