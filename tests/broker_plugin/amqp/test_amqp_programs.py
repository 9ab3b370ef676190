"""What ``make amqp-programs`` plays is drawn by seed, sent as it says, and cut down; its page names what may differ."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from python_tests.harness.waiting import wait_until
from python_tests.suites.amqp_programs import wire
from python_tests.suites.amqp_programs.address import Address, address
from python_tests.suites.amqp_programs.campaign import Totals, _append, _done
from python_tests.suites.amqp_programs.compare import explain, first_difference
from python_tests.suites.amqp_programs.differences import DIFFERENCES
from python_tests.suites.amqp_programs.generator import generate
from python_tests.suites.amqp_programs.judge import Fault, Judged
from python_tests.suites.amqp_programs.program import Op, Step, digest, octets_of, pieces
from python_tests.suites.amqp_programs.shrink import shrink
from python_tests.suites.amqp_programs.values import UNORDERED

PAGE = Path(__file__).parents[3] / "docs" / "differences.md"
pytestmark = pytest.mark.plain
OLD, NEW = "RabbitMQ 3.10", "RabbitMQ 4.0"


def test_a_seed_is_a_program() -> None:
    assert digest(generate(5)) == digest(generate(5)) != digest(generate(6))


def test_what_two_channels_publish_at_once_is_not_fetched() -> None:
    """Programs 601098 and others fetched it by no name, from the queue that the channel had declared last."""
    last: dict[tuple[str, int], object] = {}
    for step in (step for seed in (601098, 600002, 39) for step in generate(seed)):
        for op in step.ops:
            queue = op.arguments.get("queue")
            if op.name == "queue.declare":
                last[step.connection, op.channel] = queue
            if op.name == "basic.get":
                assert (queue or last.get((step.connection, op.channel))) != UNORDERED


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


def run(*options: str, **popen: Any) -> subprocess.Popen[str]:
    """The command, in a session of its own, as a terminal's foreground."""
    command = [sys.executable, "-m", "python_tests.suites.amqp_programs", *options]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **popen
    )


def test_a_rabbitmq_that_does_not_boot_is_told_in_a_sentence() -> None:
    """As one without the right to a directory, or with an argument that Erlang does not know."""
    wrong = {**os.environ, "RABBITMQ_SERVER_START_ARGS": "-config /nowhere/at/all"}
    with run("--programs", "1", env=wrong) as ended:
        out, said = ended.communicate(timeout=100)
    assert (ended.returncode, out) == (2, "") and "did not start" in said and "Traceback" not in said


def test_ctrl_c_while_rabbitmq_boots_ends_it(tmp_path: Path) -> None:
    """What was started is gone; it was told to stop by a command that a node which boots does not hear."""
    with run("--programs", "7", "--json", env={**os.environ, "TMPDIR": str(tmp_path)}) as stopped:
        wait_until(lambda: list(erlangs(tmp_path)), 60, "a node that boots")
        os.killpg(stopped.pid, signal.SIGINT)
        out, said = stopped.communicate(timeout=100)
    assert stopped.returncode == 130 and "stopped after 0 of 7 programs" in said and "Traceback" not in said
    assert json.loads(out)["programs"] == 0
    assert list(erlangs(tmp_path)) == list(tmp_path.iterdir()) == []


def erlangs(directory: Path) -> Iterator[int]:
    """Nodes of RabbitMQ below it that run, or boot."""
    for each in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in each.read_bytes() and b"beam.smp" in each.with_name("cmdline").read_bytes():
                yield int(each.parent.name)


def test_a_file_of_another_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """One that ended in the middle of a chunk, one of races, and one that was killed while it wrote a line."""
    file, whole = tmp_path / "file", Totals(programs=25)
    lines = [{"first": 0, "totals": Totals(programs=10).as_dict()}, {"first": 25, "totals": whole.as_dict()}]
    lines += [{"first": 50, "races": True, "totals": whole.as_dict()}]
    file.write_text("\n".join(json.dumps(each) for each in lines) + '\n{"first": 75, "tot')
    work = [range(start, start + 25) for start in range(0, 100, 25)]
    assert list(_done(file, work, races=False)) == [range(25, 50)]
    assert list(_done(file, work, races=True)) == [range(50, 75)]
    assert list(_done(file, [range(10)], races=False)) == [range(10)]
    _append(file, json.dumps({"first": 75, "races": False, "totals": whole.as_dict()}))
    assert list(_done(file, work, races=False)) == [range(25, 50), range(75, 100)]
