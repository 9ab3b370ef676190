"""The register of attacks, the command, and the page that it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from python_tests.suites.attacks.attack import REGISTER, Attack, Listener, add
from python_tests.suites.attacks.campaign import QUIET, attacks_of, chosen
from python_tests.suites.attacks.every import MODULES
from python_tests.suites.attacks.malformed import ALL
from python_tests.suites.attacks.measures import MIB, Found, Memory, Waits
from python_tests.suites.attacks.page import in_a_line, page, summary

ROOT = Path(__file__).parents[4]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "python_tests.suites.attacks", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_listener_is_attacked_and_every_name_is_there_once() -> None:
    assert len(MODULES) > 5 and len(REGISTER) >= len(ALL) + 40
    assert {each.listener for each in REGISTER.values()} == set(Listener)
    with pytest.raises(ValueError, match="two attacks of the name http"):
        add(REGISTER["http"])


def test_a_slice_has_each_way_in_but_files() -> None:
    listeners = {each.listener for each in chosen([], True)}
    assert listeners >= {Listener.PRIMARY, Listener.BACKUP, Listener.PEER, Listener.ADMIN}


def test_each_test_that_counts_steps_is_there() -> None:
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert all(f"def {each.held_by}(" in text for each in REGISTER.values() if each.held_by)


def test_another_broker_is_attacked_by_amqp_alone() -> None:
    names = {each.name for each in attacks_of(REGISTER.values(), True)}
    assert "channel-flood" in names and not names & {"wrong-secrets", "few-files-at-the-primary", "guessed-tokens"}


def test_a_name_that_there_is_not_is_a_sentence_and_status_2() -> None:
    done = run("--only", "nosuch")
    assert done.returncode == 2 and done.stderr == "there is no attack nosuch: --list shows all of them\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--others-only"], "--others-only leaves nothing to attack: give --rabbitmq or --broker as well"),
        (["--broker", "5691"], "--broker 5691: give a new name and a port, as in 'RabbitMQ 4.0=5691'"),
        (["--broker", "txha=5691"], "--broker txha=5691: give a new name and a port, as in 'RabbitMQ 4.0=5691'"),
        (["--broker", "four=70000"], "--broker four=70000: give a new name and a port, as in 'RabbitMQ 4.0=5691'"),
        (["--others-only", "--rabbitmq", "--write", "page.md"], "--write makes the page of txha: leave --others-only "
         "out, or --write"),
        (["--beside", "Makefile"], "--beside Makefile: this is not what --json of this command prints"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence_and_status_2(options: list[str], sentence: str) -> None:
    done = run(*options)
    assert (done.returncode, done.stderr, done.stdout) == (2, sentence + "\n", "")


def test_what_a_run_printed_as_json_is_read_again() -> None:
    one = found("http", "a node has ended")
    one.turns.append((0.06, "Reading.run"))
    assert Found.from_dict(json.loads(json.dumps(one.as_dict()))) == one


def test_the_list_as_json() -> None:
    done = run("--list", "--json")
    assert done.returncode == 0 and {each["name"] for each in json.loads(done.stdout)} == set(REGISTER)


def found(name: str, *faults: str) -> Found:
    waits = Waits(commits=20, p50=0.01, p99=0.02, longest=0.1)
    memory = {"node-1": Memory(100 * MIB, 130 * MIB, 101 * MIB)}
    return Found(name, "a|b <c>", 5.0, 0.25, waits, memory, [(0.06, "Reading._go_on")], list(faults))


def test_the_page_has_every_attack_that_was_played_and_its_harm() -> None:
    runs = {"txha": [found(QUIET), found("http"), found("wrong-secrets", "node-1 has ended")],
            "RabbitMQ 3.10": [found(QUIET), found("http")]}  # fmt: skip
    text = page(list(REGISTER.values()), runs, 0.5)
    assert "| http | 10, 20, 100 | 25% | 100, 130, 101 | 1, up to 60 ms | a\\|b &lt;c> |" in text
    assert "- txha, wrong-secrets: node-1 has ended" in text and "**harm, see below**" in text
    assert "| http | 20 ms, 100 ms, a\\|b &lt;c> | 20 ms, 100 ms, a\\|b &lt;c> |" in text and "50% was played" in text
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith(("|", "make")))
    assert str(ROOT) not in text


def test_what_is_said_of_an_attack_and_of_all() -> None:
    harmed = found("wrong-secrets", "node-1 has ended")
    assert in_a_line(harmed).endswith("\n    HARM node-1 has ended")
    assert summary({"txha": [found(QUIET), harmed]}) == (
        "txha: 2 played, 1 did harm\n  wrong-secrets: node-1 has ended"
    )


def test_an_attack_is_of_amqp_where_another_broker_has_that_port() -> None:
    one = Attack("x", Listener.PRIMARY, "does", lambda target: "")
    assert one.amqp and not Attack("x", Listener.PRIMARY, "does", lambda target: "", few_files=True).amqp
