"""Who proves what: both ends, by one secret, for one connection, one purpose and one direction."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from ha.messages.proof import (
    MAX_UNPROVEN,
    PEER,
    READER,
    DiallerProof,
    LinkSecrets,
    LinkSession,
    ListenerProof,
)

OLD, NEW, OTHER, READ = b"old" * 12, b"new" * 12, b"other" * 8, b"read" * 10
D, L = b"d" * 32, b"l" * 32


def meet(dialler: DiallerProof, listener: ListenerProof) -> tuple[LinkSession, LinkSession]:
    """The sessions of both. Raises ValueError of the end that refuses."""
    answer, none = dialler.take(listener.opening)
    assert none is None and len(answer) <= MAX_UNPROVEN
    counter, theirs = listener.take(answer)
    nothing, ours = dialler.take(counter)
    assert nothing == b"" and ours is not None and theirs is not None
    return ours, theirs


def listener(*peer: bytes, reader: tuple[bytes, ...] = (), nonce: bytes = L) -> ListenerProof:
    return ListenerProof(LinkSecrets(peer, reader), nonce)


def test_who_knows_the_secret_is_believed_and_can_be_understood() -> None:
    ours, theirs = meet(DiallerProof(OLD, PEER, D), listener(OLD))
    assert ours.purpose == theirs.purpose == PEER
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        wire = bytearray(sender.sealer.seal(b"message"))
        assert receiver.unsealer.message(wire, 0, 99) == (b"message", len(wire))


def test_who_does_not_know_it_is_not() -> None:
    with pytest.raises(ValueError, match=r"does not know the secret of this cluster \(peer.secret\)"):
        meet(DiallerProof(OTHER, PEER, D), listener(OLD))


def test_a_listener_that_does_not_know_it_is_not_believed_either() -> None:
    """It can take any answer for right; its counter-proof shows that it did not."""
    dialler = DiallerProof(OLD, PEER, D)
    dialler.take(listener(OTHER).opening)
    counter, _ = listener(OTHER).take(DiallerProof(OTHER, PEER, D).take(listener(OTHER).opening)[0])
    for said in (counter, bytes(32), b""):
        with pytest.raises(ValueError, match="does not know the secret"):
            dialler.take(said)


@pytest.mark.parametrize(
    ("accepted", "own", "believed"),
    [
        ((OLD,), OLD, True),
        ((OLD, NEW), OLD, True),
        ((OLD, NEW), NEW, True),
        ((NEW, OLD), OLD, True),
        ((NEW,), OLD, False),
        ((NEW,), NEW, True),
    ],
)
def test_two_secrets_are_valid_while_one_takes_the_other_s_place(
    accepted: tuple[bytes, ...], own: bytes, believed: bool
) -> None:
    """And the old one is worth nothing any more when it has gone."""
    try:
        meet(DiallerProof(own, PEER, D), listener(*accepted))
    except ValueError:
        assert not believed
    else:
        assert believed


STEPS: list[tuple[bytes, ...]] = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]


def test_nodes_at_neighbouring_steps_of_a_rotation_understand_each_other() -> None:
    """The procedure of docs/operations.md: nodes are started anew one by one, so two steps are there at a time."""
    for at in range(len(STEPS) - 1):
        for one, other in product(STEPS[at : at + 2], repeat=2):
            meet(DiallerProof(LinkSecrets(one).own, PEER, D), listener(*other))


@pytest.mark.parametrize(
    ("secret", "purpose", "believed"),
    [(READ, READER, True), (READ, PEER, False), (OLD, READER, True), (OTHER, READER, False), (OLD, 3, False)],
)
def test_the_right_to_read_is_not_that_to_be_a_peer(secret: bytes, purpose: int, believed: bool) -> None:
    try:
        ours, theirs = meet(DiallerProof(secret, purpose, D), listener(OLD, reader=(READ,)))
    except ValueError:
        assert not believed
    else:
        assert believed and ours.purpose == theirs.purpose == purpose


def test_a_proof_for_reading_makes_no_peer() -> None:
    """The purpose is inside what is proved: with another one the same proof is none."""
    answer, _ = DiallerProof(OLD, READER, D).take(listener(OLD).opening)
    assert answer[5] == READER
    with pytest.raises(ValueError, match="does not know the secret"):
        listener(OLD).take(answer[:5] + bytes([PEER]) + answer[6:])


def test_what_was_captured_is_worth_nothing_on_another_connection() -> None:
    answer, _ = DiallerProof(OLD, PEER, D).take(listener(OLD).opening)
    with pytest.raises(ValueError, match="does not know the secret"):
        listener(OLD, nonce=b"m" * 32).take(answer)


def test_a_node_cannot_be_made_to_prove_itself_to_itself() -> None:
    """Reflection: what the listener says, turned round to it, is no answer; nor is a proof of its own as a dialler."""
    there = listener(OLD)
    for said in (there.opening, there.opening + bytes(33)):
        with pytest.raises(ValueError, match=r"its proof has|does not know the secret"):
            there.take(said)
    answer, _ = DiallerProof(OLD, PEER, D).take(there.opening)
    counter, _ = listener(OLD).take(answer)
    with pytest.raises(ValueError, match="does not know the secret"):
        there.take(answer[:-32] + counter)
    dialler = DiallerProof(OLD, PEER, D)
    answer, _ = dialler.take(there.opening)
    with pytest.raises(ValueError, match="does not know the secret"):
        dialler.take(answer[-32:])


def test_each_direction_has_a_key_of_its_own() -> None:
    """What an end has said, turned round to it, is no message to it."""
    ours, theirs = meet(DiallerProof(OLD, PEER, D), listener(OLD))
    for end in (ours, theirs):
        with pytest.raises(ValueError, match="changed, lost, injected or repeated"):
            end.unsealer.message(bytearray(end.sealer.seal(b"message")), 0, 99)


def test_no_bit_of_a_proof_can_be_changed() -> None:
    whole, _ = DiallerProof(OLD, PEER, D).take(listener(OLD).opening)
    for bit in range(8 * len(whole)):
        answer = bytearray(whole)
        answer[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"prove|proof|secret"):
            listener(OLD).take(bytes(answer))


def test_no_bit_of_a_challenge_can_be_changed() -> None:
    """Also not its version: both ends prove what they have seen."""
    for bit in range(8 * len(listener(OLD).opening)):
        challenge = bytearray(listener(OLD).opening)
        challenge[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"prove|proof|secret"):
            listener(OLD).take(DiallerProof(OLD, PEER, D).take(bytes(challenge))[0])


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 37, 38, 69])
def test_a_proof_that_was_cut_is_none(cut: int) -> None:
    answer, _ = DiallerProof(OLD, PEER, D).take(listener(OLD).opening)
    with pytest.raises(ValueError, match=r"prove|proof"):
        listener(OLD).take(answer[:cut])


def test_no_secret_is_shown() -> None:
    shown: list[Any] = [LinkSecrets([OLD, NEW], [READ]), listener(OLD), DiallerProof(OLD, PEER, D)]
    shown += meet(DiallerProof(OLD, PEER, D), listener(OLD))
    for each in shown:
        assert not any(word.decode() in f"{each} {each!r}" for word in (OLD, NEW, READ))


def test_the_proof_of_version_1() -> None:
    """HKDF of RFC 5869, one block a label; another version must not be made by accident."""
    answer, _ = DiallerProof(OLD, PEER, D).take(listener(OLD).opening)
    counter, session = listener(OLD).take(answer)
    assert session is not None
    assert (answer[-32:].hex(), counter.hex(), session.sealer.seal(b"")[4:].hex()) == VECTOR


VECTOR = (
    "85926fee3b485f24af1a0deb9910a8c0788ff87dd2c07cdc17d9fb3eb414b41b",
    "34f898d44f8c67a2499f499e1830086a346fec4b1139815e1ab1d2e27132f2d2",
    "266628d76b2ffedb4b5f8a069195816d",
)
