"""What ``make amqp-programs`` plays is drawn by seed, sent as it says, and cut down; its page names what may differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from python_tests.amqp_programs.compare import explain, first_difference
from python_tests.amqp_programs.differences import DIFFERENCES
from python_tests.amqp_programs.generator import generate
from python_tests.amqp_programs.program import Op, Step, digest, octets_of, pieces
from python_tests.amqp_programs.shrink import shrink

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
OLD, NEW = "RabbitMQ 3.10", "RabbitMQ 4.0"


def test_a_seed_is_a_program() -> None:
    assert digest(generate(5)) == digest(generate(5)) != digest(generate(6))


def test_interleaved_frames_keep_each_channels_order() -> None:
    ops = [
        Op(channel, "basic.publish", {"exchange": "", "key": "q", "body": f"m{channel}", "size": 90, "frames": 3})
        for channel in (1, 2)
    ]
    close = Op(0, "connection.close", {})
    sent = octets_of([*ops, close], 7)
    assert sent != octets_of([*ops, close], 0)
    assert b"".join(pieces(sent, 5)) == sent
    for op in (*ops, close):
        mine = [frame for number, frame in _frames(sent) if number == op.channel]
        assert b"".join(mine) == octets_of([op], 0)


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        yield int.from_bytes(data[1:3], "big"), data[:size]
        data = data[size:]


def test_a_program_is_cut_down_to_what_shows_a_fault() -> None:
    program = generate(3)
    wanted = Step("z", (Op(1, "basic.qos", {}), Op(1, "tx.select", {})))
    found = shrink((*program, wanted), lambda each: any(op.name == "tx.select" for step in each for op in step.ops))
    assert sum(len(step.ops) for step in found) == 1


def test_the_page_names_every_wanted_difference() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE) == [each.name for each in DIFFERENCES]


def test_another_answer_is_a_fault_unless_it_is_wanted() -> None:
    program = generate(5)
    refused = "connection.close code=501 text='FRAME_ERROR - cannot decode {}' class=50 method=10"
    one = [{"a.1": ["queue.declare-ok queue='q' messages=1 consumers=0"]}, {"a.0": [refused.format("this")]}]
    assert first_difference(one, [one[0], {"a.0": [refused.format("that")]}], OLD) is None
    assert first_difference(one, [one[0], {"a.0": [refused.format("this").replace("501", "502")]}], OLD) is not None
    for other in ("queue.declare-ok queue='q' messages=2 consumers=0", "nothing"):
        mismatch = first_difference(one, [{"a.1": [other]}, one[1]], OLD)
        assert mismatch is not None and mismatch.step == 0 and other in explain(program, mismatch)
    assert first_difference(one, one[:1], OLD) is not None
