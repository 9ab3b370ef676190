"""What ``make amqp-programs`` plays is drawn by seed, sent as it says, and cut down; its page names what may differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_tests.amqp_programs import wire
from python_tests.amqp_programs.address import Address, address
from python_tests.amqp_programs.campaign import Totals
from python_tests.amqp_programs.compare import explain, first_difference
from python_tests.amqp_programs.differences import DIFFERENCES
from python_tests.amqp_programs.generator import generate
from python_tests.amqp_programs.judge import Fault, Judged
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


def test_what_differs_between_versions_of_rabbitmq_is_wanted_of_that_version_only() -> None:
    def came(*headers: str) -> list[dict[str, list[str]]]:
        return [{"a.1": [f"basic.get-ok messages=0 'm' 1 00 2000 headers=[{','.join(headers)}]"]}]

    assert first_difference(came("01", "02"), came("02", "01"), NEW) is None
    assert first_difference(came("01", "02"), came("02", "01"), OLD) is not None
    assert first_difference(came("01", "02"), came("02", "03"), NEW) is not None
    channel = [{"a.1": ["channel.close code=406 text='unknown exchange type 'carousel''"]}, {"a.1": ["one"]}]
    connection = [{"a.0": ["connection.close code=503 text='unknown exchange type 'carousel''"]}, {"a.1": ["other"]}]
    assert first_difference(channel, connection, NEW) is None
    assert first_difference(channel, connection, OLD) is not None


def test_headers_are_read_from_a_messages_properties() -> None:
    entries = [["a", "S", "text"], ["b", "l", 1], ["c", "F", [["in", "t", True]]], ["d", "V", None], ["e", "D", [1, 5]]]
    header = wire.content_header(0, {"content_type": "t", "headers": entries, "priority": 3})[12:]
    rest, found = wire.read_headers(header)
    assert found == [wire.table([entry])[4:] for entry in entries]
    assert rest == header[:4] + header[-1:]
    assert wire.read_headers(wire.content_header(0, {"priority": 3})[12:])[1] == []


def test_a_file_of_a_run_is_read_again() -> None:
    totals = Totals()
    totals.add(7, Judged(3, 9, [OLD, NEW], [OLD], [NEW], [Fault(7, OLD, "text")]))
    again = Totals.from_dict(json.loads(json.dumps(totals.as_dict())))
    again.merge(totals)
    assert (again.programs, again.operations, again.again) == (2, 18, 2)
    assert again.played == {OLD: 2, NEW: 2} and again.unsteady == [(7, NEW)] * 2 and len(again.faults) == 2


def test_a_broker_is_given_by_its_url() -> None:
    assert address("amqp://me:s%2Fecret@there:5673/programs") == Address(5673, "there", "programs", "me", "s/ecret")
    assert address("amqp://there/").vhost == "/" and address("amqp://there/v").of_job(2).vhost == "v-2"
    with pytest.raises(ValueError, match="amqp://user:password@host:port/vhost"):
        address("there:5672")
