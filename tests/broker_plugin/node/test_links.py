"""A node dials every other, again and again, and tells when a peer is linked and when it is no more."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from broker_plugin.node import links as links_module
from broker_plugin.node.links import FIRST_DELAY, LARGE, LAST_DELAY, SHARED, Links, PeerAddress, SealedStream
from broker_plugin.node.peer_protocol import MAX_HELLO, MAX_MESSAGE, PeerProtocol
from ha.messages.framing import Framer, Unframer
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.proof import MAX_UNPROVEN, ListenerProof
from ha.messages.seals import LONG, Sealer, Unsealer
from ha.messages.stream import Commit, Entries
from ha.messages.wire import encode
from tests.support.far_end import CREDENTIALS, SECRETS, FarEnd, listening
from tests.support.guards import StrictGuard

OURS = Hello(WIRE_VERSION, "cluster", "a", "127.0.0.1", 1, features=["x", "y"])
THEIRS = Hello(WIRE_VERSION, "cluster", "b", "127.0.0.1", 2, features=["y", "z"])
BOTH = frozenset({"y"})
REFUSED, TAKEN = False, True


class Transport:
    """One end of a connection; ``lost`` ends it from the other side."""

    def __init__(self, protocol: PeerProtocol) -> None:
        self.protocol = protocol
        self.written = b""
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.9", 4711) if name == "peername" else None

    def abort(self) -> None:
        self.aborted = True
        self.protocol.connection_lost(None)


class Slow(Transport):
    """The loop tells later that the connection has ended."""

    def abort(self) -> None:
        self.aborted = True


def greet(dialled: Transport) -> FarEnd:
    """As node b, which was dialled."""
    far = listening().meet(dialled.protocol, dialled)
    dialled.protocol.data_received(far.say(THEIRS))
    return far


def come(links: Links) -> tuple[Transport, FarEnd]:
    """A connection that was made to the node and has proved itself."""
    came = Transport(links._accepted())
    came.protocol.connection_made(came)  # type: ignore[arg-type]
    return came, FarEnd().meet(came.protocol, came)


def listener(hello: Hello = OURS, *then: Any) -> PeerProtocol:
    """The node's end of a connection that was made to it."""
    proof = ListenerProof(SECRETS, bytes(32))
    return PeerProtocol(StrictGuard(), hello, proof, ["b"], *(then or (nothing, nothing, nothing)))


def nothing(*words: object) -> None:
    """Not looked at."""


class Server:
    closed = False

    def close(self) -> None:
        self.closed = True


class Network(StrictGuard):
    """Refuses and takes connections as scripted, the last one for ever; ``made`` are those that were taken."""

    def __init__(self, *script: bool) -> None:
        super().__init__()
        self.script = list(script)
        self.dialled: list[tuple[str, int]] = []
        self.made: list[Transport] = []
        self.server = Server()
        self.done = asyncio.Event()

    async def create_server(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        self.factory = factory
        return self.server

    async def create_connection(self, factory: Callable[[], Any], host: str, port: int, **options: Any) -> Any:
        self.dialled.append((host, port))
        if self.script.pop(0) is REFUSED:
            raise ConnectionRefusedError
        protocol = factory()
        self.made.append(Transport(protocol))
        protocol.connection_made(self.made[-1])
        if not self.script:
            self.done.set()
        else:
            greet(self.made[-1])
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)
        return self.made[-1]


class Dialling:
    """The links of node a, whose one peer is b."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: bool) -> None:
        self.network = Network(*script)
        self.slept: list[float] = []
        self.told: list[tuple[str, frozenset[str] | None]] = []
        self.got: list[tuple[str, Any]] = []
        self.links = Links(
            self.network,
            OURS,
            CREDENTIALS,
            [PeerAddress("b", "host-b", 7)],
            lambda peer, up: self.told.append((peer, up)),
            lambda peer, message: self.got.append((peer, message)),
        )
        turn = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            await turn(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    async def until_the_last(self) -> Transport:
        """The connection that stands in the end; it has not greeted yet."""
        await self.links.start("", 0)
        await asyncio.wait_for(self.network.done.wait(), 20)
        return self.network.made[-1]


async def test_a_peer_that_cannot_be_reached_is_dialled_again_and_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = Dialling(monkeypatch, *[REFUSED] * 6, TAKEN)
    await ours.until_the_last()
    assert ours.slept[:2] == [2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert ours.slept == sorted(ours.slept) and ours.slept[-2:] == [LAST_DELAY, LAST_DELAY]
    assert ours.network.dialled == [("host-b", 7)] * 7 and ours.told == [], "who has not greeted is not linked"
    await ours.links.stop()


async def test_a_connection_that_was_lost_is_made_anew_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its peer could not be reached before."""
    ours = Dialling(monkeypatch, REFUSED, REFUSED, TAKEN, TAKEN, REFUSED, TAKEN)
    await ours.until_the_last()
    assert ours.told == [("b", BOTH), ("b", None)] * 2
    assert ours.slept == [2 * FIRST_DELAY, 4 * FIRST_DELAY, FIRST_DELAY, FIRST_DELAY, 2 * FIRST_DELAY]
    await ours.links.stop()


async def test_what_is_sent_goes_out_on_the_connection_that_stands_and_else_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = Dialling(monkeypatch, TAKEN, TAKEN)
    last = await ours.until_the_last()
    ours.links.send("b", Commit(1, 1, 1))
    assert last.written == b"", "no peer is linked, and who dials says nothing first"
    far = greet(last)
    assert ours.told[-1] == ("b", BOTH) and ours.links.greetings["b"] == THEIRS
    ours.links.send("b", Commit(1, 1, 2))
    far.hear(last)
    assert far.got == [encode(OURS), encode(Commit(1, 1, 2))]
    last.protocol.data_received(far.say(Commit(1, 1, 3)))
    assert ours.got == [] and not last.aborted, "messages come on the connection that the sender dialled"
    await ours.links.stop()


async def test_to_stop_ends_every_connection_and_tells_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Dialling(monkeypatch, TAKEN)
    last = await ours.until_the_last()
    greet(last)
    came, ends = zip(*(come(ours.links) for _ in range(3)), strict=True)
    came[1].protocol.data_received(ends[1].say(THEIRS, Commit(1, 1, 1)))
    came[2].abort()
    assert ours.got == [("b", Commit(1, 1, 1))]
    await ours.links.stop()
    assert last.aborted and all(each.aborted for each in came) and ours.network.server.closed
    assert ours.told == [("b", BOTH)], "no part is to act on a link that it ends itself"
    ours.links.send("b", Commit(1, 1, 2))
    assert len(ours.network.dialled) == 1


async def test_a_connection_that_has_ended_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node runs for years, and others come and go. For as long as one may greet it is remembered."""
    monkeypatch.setattr(links_module, "GREETING_SECONDS", 0.0)
    ours = Dialling(monkeypatch, TAKEN, TAKEN)
    await ours.until_the_last()
    came = Transport(ours.network.factory())
    came.protocol.connection_made(came)  # type: ignore[arg-type]
    came.protocol.connection_lost(None)
    left = [weakref.ref(came.protocol), weakref.ref(ours.network.made[0].protocol)]
    del came, ours.network.made[0]
    for _ in range(20):
        await asyncio.sleep(0)
        gc.collect()
        if not any(each() for each in left):
            break
    assert [each() for each in left] == [None, None]
    await ours.links.stop()


async def test_what_comes_on_a_connection_that_was_closed_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Dialling(monkeypatch, TAKEN)
    await ours.until_the_last()
    protocol = ours.network.factory()
    came = Slow(protocol)
    protocol.connection_made(came)
    far = FarEnd().meet(protocol, came)
    spoilt = bytearray(far.say(THEIRS, Commit(1, 1, 1)))
    protocol.data_received(b"\xff\xff\xff\xff")
    assert came.aborted
    protocol.data_received(bytes(spoilt))
    assert ours.got == [] and protocol.peer is None
    await ours.links.stop()


@pytest.mark.parametrize(("cluster_id", "greeted"), [("mine", ["b"]), ("other", []), ("", [])])
def test_a_peer_of_a_cluster_that_was_founded_apart_is_refused(cluster_id: str, greeted: list[str]) -> None:
    """Also one that does not say which cluster it is of."""
    found: list[str] = []
    protocol = listener(
        replace(OURS, cluster_id="mine"), lambda protocol, hello: found.append(hello.node), nothing, nothing
    )
    transport: Any = Transport(protocol)
    protocol.connection_made(transport)
    far = FarEnd().meet(protocol, transport)
    protocol.data_received(far.say(replace(THEIRS, cluster_id=cluster_id)))
    assert found == greeted and transport.aborted is not bool(greeted)


def test_a_node_that_is_no_peer_is_refused() -> None:
    """Of the right cluster, with its secret, and not of this configuration; nothing that it says is taken."""
    greeted: list[str] = []
    got: list[Any] = []
    protocol = listener(OURS, lambda _, hello: greeted.append(hello.node), lambda *said: got.append(said), nothing)
    transport: Any = Transport(protocol)
    protocol.connection_made(transport)
    far = FarEnd().meet(protocol, transport)
    protocol.data_received(far.say(replace(THEIRS, node="c"), Commit(1, 1, 1)))
    assert transport.aborted and greeted == [] == got


@pytest.mark.parametrize(
    "size", [0, 255, LONG - 1, LONG, LARGE - 1, LARGE, (1 << 16) - 1, 1 << 16, 1 << 20, SHARED + 1]
)
def test_a_large_frame_goes_to_each_backup_as_it_is(size: int) -> None:
    """What is received is what ``encode`` gives, and it is not copied: 128 MiB would hold the loop up for each."""
    frame, stream = bytes(size), SealedStream()
    for backup, numbers in enumerate(((1, 7, 0), (1 << 22, (1 << 63) - 1, 1 << 42))):
        message, key = Entries(*numbers, frame), bytes([backup]) * 32
        sealer, unsealer = Sealer(key), Unsealer(key)
        for each in (message, Commit(1, 2, 3)):
            sent = stream.parts(sealer, each)
            assert any(part is frame for part in sent) == (size >= LARGE and each is message)
            wire = bytearray(b"".join(sent))
            assert unsealer.message(wire, 0, MAX_MESSAGE) == (encode(each), len(wire))


def test_a_frame_is_hashed_once_for_all_backups(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[bytes] = []
    monkeypatch.setattr(links_module, "hash_of", lambda data: hashed.append(data) or bytes(32))
    stream, frames = SealedStream(), [bytes(LONG), bytes(LARGE), bytes(SHARED + 1)]
    for frame in frames:
        for backup in range(3):
            stream.parts(Sealer(bytes([backup]) * 32), Entries(1, backup, 0, frame))
    assert [len(each) for each in hashed] == [LONG, LARGE, *[SHARED + 1] * 3]
    assert stream._hashed == (b"", b""), "and one that is larger is not kept"


@pytest.mark.parametrize(("step", "limit"), [(0, MAX_UNPROVEN), (1, MAX_HELLO), (2, MAX_MESSAGE)])
def test_a_message_is_as_long_as_may_be_and_no_longer(step: int, limit: int) -> None:
    """Who has not proved itself fills no memory, and who has not said who it is next to none."""
    for length, closed in ((limit, False), (limit + 1, True)):
        protocol = listener()
        transport: Any = Transport(protocol)
        protocol.connection_made(transport)
        if step:
            FarEnd().meet(protocol, transport)
            protocol.peer = "b" if step == 2 else None
        protocol.data_received(length.to_bytes(4, "big") + b"begun")
        assert transport.aborted == closed


async def test_who_connects_when_only_the_node_s_own_descriptors_are_left_is_not_greeted() -> None:
    """Who keeps silent stays for GREETING_SECONDS, and who reads the log for as long as it likes."""
    asked: list[Any] = []

    def admit_none(transport: asyncio.BaseTransport) -> bool:
        asked.append(transport)
        return False

    links = Links(StrictGuard(), OURS, CREDENTIALS, [PeerAddress("b", "h", 7)], nothing, nothing, admit=admit_none)
    protocol = links._accepted()
    transport: Any = Transport(protocol)
    protocol.connection_made(transport)
    assert asked == [transport] and transport.aborted and transport.written == b"" and not links._in
    protocol.data_received(b"\xff\xff\xff\xff")
    assert transport.written == b"" and protocol.session is None


@pytest.mark.parametrize("size", [0, LONG - 1, LONG, LARGE, 1 << 16, SHARED + 1])
def test_over_tls_a_frame_is_neither_hashed_nor_sealed(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is received is the same; it comes in pieces, as from any network."""
    monkeypatch.setattr(links_module, "hash_of", None)
    frame = bytes(size)
    parts = [*SealedStream().parts(Framer(), Entries(1, 7, 0, frame)), Framer().seal(encode(Commit(1, 1, 1)))]
    wanted = [encode(Entries(1, 7, 0, frame)), encode(Commit(1, 1, 1))]
    assert sum(map(len, parts)) == sum(4 + len(each) for each in wanted)
    said, unframer, buffer, found = b"".join(parts), Unframer(), bytearray(), []
    for at in range(0, len(said), 1 + len(said) // 7):
        buffer += said[at : at + 1 + len(said) // 7]
        while (one := unframer.message(buffer, 0, MAX_MESSAGE)) is not None:
            found.append(one[0])
            del buffer[: one[1]]
    assert found == wanted
    with pytest.raises(ValueError, match="a message of 9 bytes"):
        unframer.message(bytearray((9).to_bytes(4, "big")), 0, 8)
