"""Frames that go to several backups are hashed once: each gets the seal of its own bytes."""

from __future__ import annotations

from broker_plugin.node.links import LARGE, SealedStream
from ha.messages.seals import LONG, Sealer, Unsealer
from ha.messages.stream import Entries
from ha.messages.wire import decode

KEY = b"k" * 32


def test_a_frame_as_long_as_the_one_before_has_a_seal_of_its_own() -> None:
    """The hash that is kept for the next backup is of one frame, not of all of its length."""
    stream = SealedStream()
    backups = [(Sealer(KEY + name), Unsealer(KEY + name)) for name in (b"b", b"c")]
    for size in (LONG, LARGE):
        for octet in (b"1", b"2"):
            message = Entries(1, 1, 0, octet * size)
            for sealer, unsealer in backups:
                sent = bytearray().join(stream.parts(sealer, message))
                found = unsealer.message(sent, 0, 1 << 20)
                assert found is not None and decode(found[0]) == message and found[1] == len(sent)
