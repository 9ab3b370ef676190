"""Conversations that no proper client has: each is had again and again, on one connection after the other."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Attack, Listener, add
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import Wire, message, method, start_ok

AGAIN = 40
"""How often each is had"""
MOST_NESTED = 3900


class Conversation(NamedTuple):
    """``said`` goes out on a connection that has said nothing yet (``step`` 0), has sent the protocol header (1), has
    logged in (2), or has a channel open as well (3).
    """

    name: str
    does: str
    step: int
    said: bytes
    in_slice: bool = False


def nested(depth: int, arrays: bool) -> bytes:
    """A table of one value, so many tables or arrays deep."""
    inner = b"V"
    for _ in range(depth):
        inner = b"A" + amqp.long(inner) if arrays else b"F" + amqp.long(b"\x01a" + inner)
    return amqp.long(b"\x01a" + inner)


def declare(arguments: bytes, name: bytes = b"q") -> bytes:
    """queue.declare with these octets as its arguments."""
    return _method(50, 10, struct.pack(">HB", 0, len(name)) + name + b"\x00" + arguments)


def _method(class_id: int, method_id: int, rest: bytes = b"", channel: int = 1) -> bytes:
    return amqp.frame(amqp.METHOD, channel, struct.pack(">HH", class_id, method_id) + rest)


def _publish() -> bytes:
    return method(1, "basic.publish", key="nowhere")


def _header(size: int, class_id: int = 60) -> bytes:
    return amqp.frame(amqp.HEADER, 1, amqp.content_header(size, {}, class_id))


def _body(data: bytes) -> bytes:
    return amqp.frame(amqp.BODY, 1, data)


QOS = method(1, "basic.qos", count=1)
TLS = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + bytes(150)

HANDSHAKE = [
    Conversation("http", "a request of HTTP", 0, b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", True),
    Conversation("tls-hello", "a ClientHello of TLS", 0, TLS),
    Conversation("amqp-1-0", "the protocol header of AMQP 1.0", 0, b"AMQP\x00\x01\x00\x00"),
    Conversation("amqp-0-8", "the protocol header of AMQP 0-8", 0, b"AMQP\x01\x01\x08\x00"),
    Conversation("ssh-banner", "what a client of SSH says first", 0, b"SSH-2.0-OpenSSH_9.6\r\n"),
    Conversation("zeros", "a million zeros before the header", 0, bytes(1 << 20)),
    Conversation("half-a-header", "half of the protocol header", 0, b"AMQP"),
    Conversation("method-before-login", "queue.declare before the login", 1, method(1, "queue.declare", queue="q")),
    Conversation("open-before-login", "connection.open before start-ok", 1, method(0, "connection.open", vhost="/")),
    Conversation("header-twice", "the protocol header twice", 1, amqp.PROTOCOL_HEADER),
    Conversation("unknown-mechanism", "a login by no known mechanism", 1, start_ok("guest", "guest", "KERBEROS")),
    Conversation("login-without-nul", "a login whose response is not one of PLAIN", 1,
                 method(0, "connection.start-ok", mechanism="PLAIN", response="guest", locale="en_US")),
    Conversation("login-of-128-kib", "a login with a user's name of 128 KiB", 1, start_ok("u" * 131000, "x")),
    Conversation("login-with-controls", "a refused user whose name has line ends and escapes", 1,
                 start_ok("\x1b[2J\r\n2026-01-01 INFO node-1: \x00all is well\x7f", "x"), True),
    Conversation("properties-nested", f"client properties nested {MOST_NESTED} deep", 1,
                 _method(10, 11, nested(MOST_NESTED, False) + b"\x05PLAIN" + amqp.long(b"\0guest\0guest") + b"\x02en",
                         0), True),
    Conversation("frame-of-4-gib-early", "a frame that says it has 4 GiB, before the login", 1,
                 b"\x01\x00\x00\xff\xff\xff\xff" + bytes(1000)),
]  # fmt: skip

FRAMES = [
    Conversation("wrong-frame-end", "a frame with another octet at its end", 3, QOS[:-1] + b"\xcf", True),
    Conversation("truncated-frame", "half a frame, and no more", 3, QOS[:-5]),
    Conversation("frame-of-4-gib", "a frame that says it has 4 GiB", 3, b"\x01\x00\x01\xff\xff\xff\xff" + bytes(9000)),
    Conversation("frame-above-frame-max", "a frame one octet longer than was agreed on", 3,
                 amqp.frame(amqp.METHOD, 1, bytes(131065))),
    Conversation("frame-of-no-octets", "a method's frame of no octets", 3, amqp.frame(amqp.METHOD, 1, b"")),
    Conversation("unknown-frame", "a frame of kind 77", 3, amqp.frame(77, 1, b"abc")),
    Conversation("channel-out-of-range", "channel 65535 is opened, and 2047 are the most", 2,
                 method(65535, "channel.open")),
    Conversation("channel-twice", "a channel is opened that is open", 3, method(1, "channel.open")),
    Conversation("channel-never-opened", "a method on a channel that was not opened", 3, method(7, "tx.commit")),
    Conversation("channel-zero", "a method of a channel on channel 0", 3, method(0, "queue.declare", queue="q")),
    Conversation("heartbeat-on-channel", "a heartbeat with a body, on a channel", 3, amqp.frame(8, 1, b"beat")),
    Conversation("connection-on-channel", "connection.open on a channel", 3, method(1, "connection.open", vhost="/")),
    Conversation("login-again", "a second login on an open connection", 3, start_ok("guest", "guest")),
    Conversation("unknown-class", "a method of class 999", 3, _method(999, 10)),
    Conversation("unknown-method", "method 999 of class basic", 3, _method(60, 999)),
    Conversation("server-s-method", "a client says basic.deliver", 3,
                 method(1, "basic.deliver", tag="t", delivery=1, key="q")),
    Conversation("method-cut-short", "basic.publish whose strings end too early", 3, _method(60, 40, b"\0\0\xffx")),
    Conversation("method-too-long", "tx.select with 100 octets behind it", 3, _method(90, 10, bytes(100))),
]  # fmt: skip

CONTENT = [
    Conversation("content-without-header", "a body behind a publish, and no header", 3, _publish() + _body(b"abc")),
    Conversation("header-without-publish", "a content header behind no publish", 3, _header(3)),
    Conversation("header-of-another-class", "a content header of class tx", 3, _publish() + _header(3, 90)),
    Conversation("header-that-lies", "a header of 3 octets, and 9 of body", 3,
                 _publish() + _header(3) + _body(b"x" * 9), True),
    Conversation("header-of-16-eib", "a header that announces 2 ** 64 - 1 octets", 3,
                 _publish() + _header(2**64 - 1) + _body(b"x" * 100)),
    Conversation("publish-in-a-publish", "a method in the middle of content", 3, _publish() + _header(3) + QOS),
    Conversation("properties-cut-short", "properties whose flags promise more than there is", 3,
                 _publish() + amqp.frame(amqp.HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0xFFFC))),
    Conversation("flags-without-end", "property flags that go on and on", 3,
                 _publish() + amqp.frame(amqp.HEADER, 1, struct.pack(">HHQ", 60, 0, 0) + b"\xff\xff" * 500)),
    Conversation("publish-to-closed-channel", "a message on a channel that was closed", 3,
                 method(1, "channel.close") + message(1, "", "nowhere", b"late") * 3),
]  # fmt: skip

VALUES = [
    Conversation("arrays-nested", f"arguments of arrays nested {MOST_NESTED} deep", 3,
                 declare(nested(MOST_NESTED, True)), True),
    Conversation("tables-nested", f"arguments of tables nested {MOST_NESTED} deep", 3,
                 declare(nested(MOST_NESTED, False))),
    Conversation("table-that-lies", "a table whose length is 4 GiB", 3, declare(b"\xff\xff\xff\xff\x01aV")),
    Conversation("unknown-type", "a table with a value of an unknown type", 3, declare(amqp.long(b"\x01a?"))),
    Conversation("name-not-unicode", "a queue's name that is no UTF-8", 3, declare(bytes(4), b"\xff\xfe\x80")),
    Conversation("name-with-nul", "a queue's name of NULs and line ends", 3, declare(bytes(4), b"\0\0\r\n\x1b[31mq")),
    Conversation("name-of-formula", "a queue that is named as a formula is begun", 3, declare(bytes(4), b"$\\frac{$")),
    Conversation("tx-without-select", "tx.commit without tx.select", 3, method(1, "tx.commit")),
    Conversation("rollback-without-select", "tx.rollback without tx.select", 3, method(1, "tx.rollback")),
    Conversation("ack-of-nothing", "basic.ack of a delivery that never was", 3, method(1, "basic.ack", delivery=2**63)),
    Conversation("cancel-of-nothing", "500 consumers are cancelled that never were", 3,
                 method(1, "basic.cancel", tag="nobody") * 500),
    Conversation("reserved-names", "an exchange is declared in the name of a reserved one", 3,
                 method(1, "exchange.declare", exchange="amq.mine", type="direct", durable=True)),
    Conversation("unknown-exchange-type", "an exchange of an unknown type", 3,
                 method(1, "exchange.declare", exchange="e", type="\x00\x01nonsense")),
]  # fmt: skip

ALL = [*HANDSHAKE, *FRAMES, *CONTENT, *VALUES]


def begin(target: Target, step: int, port: int | None = None) -> Wire:
    """A connection that has got so far. Raises OSError."""
    if step >= 2:
        return target.login(port, (1,) if step == 3 else ())
    wire = target.dial(port)
    if step == 1:
        wire.send(amqp.PROTOCOL_HEADER)
        wire.expect("connection.start")
    return wire


def have(target: Target, one: Conversation, times: int, port: int | None = None) -> str:
    """Have it so often; returns how it was answered the first time. Every other one ends with a RST."""
    answers = []
    for number in range(times):
        wire = begin(target, one.step, port)
        wire.send(one.said)
        if number == 0:
            answers.append(wire.outcome(1.0))
        (wire.reset if number % 2 else wire.close)()
    return answers[0]


def _register(conversations: Sequence[Conversation]) -> None:
    for one in conversations:
        def run(target: Target, one: Conversation = one) -> str:
            return have(target, one, target.times(AGAIN))

        does = f"{one.does[0].upper()}{one.does[1:]}, on {AGAIN} connections"
        add(Attack(one.name, Listener.PRIMARY, does, run, in_slice=one.in_slice))


_register(ALL)
