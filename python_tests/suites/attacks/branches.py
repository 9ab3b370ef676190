"""Class dtx, which brokers other than ours do not know: xids that are nonsense, and branches that are never ended."""

from __future__ import annotations

import struct

from python_tests.suites.amqp_programs import wire as amqp
from python_tests.suites.attacks.attack import Listener, attack
from python_tests.suites.attacks.target import Target
from python_tests.suites.attacks.wire import Wire

PRIMARY = Listener.PRIMARY
SELECT = 10
METHODS = [*range(10, 150, 10), *range(11, 151, 10)]
XIDS = [b"", b"\0" * 4, b"\xff" * 200, struct.pack(">I", 2**31) + b"\x40" + b"g" * 64 + b"\x40" + b"b" * 64,
        struct.pack(">I", 1) + b"\xff" + b"g" * 255 + b"\xff" + b"b" * 255, struct.pack(">I", 1) + b"\0\0",
        struct.pack(">I", 1) + b"\x03\r\n\0" + b"\x04\x1b[2J"]  # fmt: skip


def dtx(method_id: int, rest: bytes = b"") -> bytes:
    """A method of class dtx on channel 1."""
    return amqp.frame(amqp.METHOD, 1, struct.pack(">HH", 100, method_id) + rest)


@attack(PRIMARY, "Every method of class dtx with xids that are empty, too long, or full of control characters")
def nonsense_xids(target: Target) -> str:
    answers: dict[str, int] = {}
    for method_id in METHODS[: target.times(len(METHODS))]:
        for xid in XIDS:
            for rest in (xid, xid + bytes(9)):
                wire = target.login()
                wire.send(dtx(SELECT) + dtx(method_id, rest))
                said = _briefly(wire)
                answers[said] = answers.get(said, 0) + 1
                wire.close()
    return ", ".join(f"{count} x {said}" for said, count in sorted(answers.items()))


def _briefly(wire: Wire) -> str:
    wire.send(amqp.frame(amqp.METHOD, 0, amqp.method("connection.close", {"code": 200})))
    return wire.outcome(2.0)
