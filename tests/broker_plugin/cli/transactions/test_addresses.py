"""Brokers and databases that are named on the command line and cannot be: status 2, one sentence, and no password."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from broker_plugin.cli.addresses import check_brokers, check_databases, read_brokers, read_databases, shown
from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.commands import app
from broker_plugin.cli.transactions.dtx_recover import dtx_recover
from broker_plugin.cli.transactions.settle_spark import settle_spark
from recovery.coordinator.decision_log import DecisionLog
from recovery.pipeline.errors import PipelineError


def test_no_decisions_is_not_nothing_in_doubt() -> None:
    """Without a log and without tables no broker is asked: that must not end with "nothing is left in doubt"."""
    with pytest.raises(BadArgument, match="nothing says what was decided: name the log, with --log, or tables, with"):
        dtx_recover(log=None, broker=["amqp://127.0.0.1:1/"])


def test_a_second_log_is_not_ignored(tmp_path: Path) -> None:
    """The last one was read, and what hangs on the first was called settled."""
    logs = [tmp_path / "one", tmp_path / "other"]
    for each in logs:
        DecisionLog(each).close()
    with pytest.raises(BadArgument, match="one decision log: run it once for each"):
        dtx_recover(log=logs, broker=["amqp://127.0.0.1:1/"])


@pytest.mark.parametrize(
    ("broker", "database"),
    [
        (["amqp://me:hun/ter@host/"], []),
        ([""], []),
        ([], ["port=1 password=hun ter=2"]),
        ([], ["postgresql://me:hun%ter@host/db"]),
        ([], ["postgresql://me@corp:hunter@host/db"]),
        ([], ["postgresql://me:hun@ter@host/db"]),
        ([], ["postgresql://me:hun/ter@host/db"]),
        ([], ["hunter"]),
        ([], [""]),
    ],
)
def test_what_can_be_mended_is_said_before_anybody_is_asked(
    tmp_path: Path, broker: list[str], database: list[str]
) -> None:
    DecisionLog(tmp_path / "log").close()
    with pytest.raises(BadArgument, match=r"--broker|--database") as told:
        dtx_recover(log=[tmp_path / "log"], broker=broker, database=database)
    assert "hun" not in str(told.value) and "ter" not in str(told.value)


def test_a_password_stands_in_a_file_and_not_in_the_process_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who sees a machine's processes has read it, so it is refused. That of guest is known to all."""
    secret = tmp_path / "broker"
    secret.write_text("amqp://me:hunter@a/,amqp://me:hunter@b/\n")
    secret.chmod(0o600)
    assert read_brokers([f"@{secret}", "amqp://guest:guest@c/"]) == [
        "amqp://me:hunter@a/,amqp://me:hunter@b/",
        "amqp://guest:guest@c/",
    ]
    assert read_databases(["host=h dbname=d", "service=bank"]) == ["host=h dbname=d", "service=bank"]
    assert capsys.readouterr().err == ""
    for read, option, address in (
        (read_brokers, "--broker", "amqp://guest:guest@c/,amqp://me:hunter@a/"),
        (read_databases, "--database", "host=h password=hunter"),
        (read_brokers, "--broker", "amqp://me@corp:hunter@a/"),
        (read_databases, "--database", "postgresql://me:hunter@h/d"),
        (read_databases, "--database", "postgresql://guest:guest@h/d"),
    ):
        with pytest.raises(BadArgument) as refused:
            read([address])
        told = str(refused.value)
        assert f"give {option} @FILE" in told and "\n" not in told and "hunter" not in told


def test_a_file_with_a_password_is_nobody_else_s(tmp_path: Path) -> None:
    secret = tmp_path / "broker"
    with pytest.raises(BadArgument, match=r"--broker: .* cannot be read: No such file"):
        read_brokers([f"@{secret}"])
    secret.write_text("amqp://me:hunter@a/\namqp://me:hunter@b/\n")
    for mode in (0o640, 0o620, 0o604):
        secret.chmod(mode)
        with pytest.raises(BadArgument, match=r"chmod go="):
            read_brokers([f"@{secret}"])
    with pytest.raises(BadArgument, match=r"chmod go="):
        read_brokers([f"@{secret}"])
    with secret.open() as as_stdin, pytest.raises(BadArgument, match=f"chmod go= {secret}$"):
        read_brokers([f"@/dev/fd/{as_stdin.fileno()}"])
    secret.chmod(0o600)
    with pytest.raises(BadArgument, match="must hold one address, in one line") as told:
        read_brokers([f"@{secret}"])
    assert "hunter" not in str(told.value)
    for nothing in ("", "\n \n"):
        secret.write_text(nothing)
        with pytest.raises(BadArgument, match="must hold one address, in one line"):
            read_brokers([f"@{secret}"])


def test_a_file_with_the_password_alone(tmp_path: Path) -> None:
    """What stands in it was repeated, as no url of a broker."""
    secret = tmp_path / "broker"
    secret.touch(0o600)
    for holds in ("hunter", "127.0.0.1:5701:*:me:hunter", "amqp://me:hunter"):
        secret.write_text(holds)
        for read in (read_brokers, read_databases):
            with pytest.raises(BadArgument, match=r"no url of a broker|DSN cannot be read") as told:
                read(["service=bank" if read is read_databases else "amqp://h/", f"@{secret}"])
            assert "hunter" not in str(told.value)


def test_a_file_without_an_end() -> None:
    """Nothing but the memory ended the reading."""
    with pytest.raises(BadArgument, match=r"/dev/zero"):
        read_brokers(["@/dev/zero"])


@pytest.mark.parametrize("held", [b"", b"\n", b"amqp://\xff\xfe"])
def test_a_file_without_an_address_is_said(tmp_path: Path, held: bytes) -> None:
    secret = tmp_path / "broker"
    secret.write_bytes(held)
    secret.chmod(0o600)
    with pytest.raises(BadArgument, match=r"not UTF-8" if b"a" in held else "one address, in one line"):
        read_brokers([f"@{secret}"])


def test_a_file_that_others_may_write_is_refused_and_a_pipe_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user who writes it could lead the command elsewhere; and a shell's pipe, as of a password store, has any
    mode."""
    path = tmp_path / "password=in the name"
    path.write_text("amqp://me:hunter@a/")
    path.chmod(0o602)
    with pytest.raises(BadArgument, match=r"chmod go="):
        read_brokers([f"@{path}"])
    path.unlink()
    os.mkfifo(path)
    path.chmod(0o666)
    writer = threading.Thread(target=path.write_text, args=("amqp://me:hunter@a/",))
    writer.start()
    try:
        assert read_brokers([f"@{path}"]) == ["amqp://me:hunter@a/"]
    finally:
        writer.join()
    assert capsys.readouterr().err == ""


def test_settle_spark_asks_the_brokers_that_the_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, asked = tmp_path / "broker", list[list[str]]()
    secret.write_text("amqp://me:hunter@a/,amqp://me:hunter@b/")
    secret.chmod(0o600)

    def settle(urls: list[str], given_up: object, patience: float) -> list[object]:
        asked.append(urls)
        raise PipelineError("no")

    monkeypatch.setattr("recovery.pipeline.queues.settle.settle", settle)
    with pytest.raises(BadArgument, match="@b/: no") as told:
        settle_spark(broker=f"@{secret}", give_up=None, patience=1.0, as_json=False)
    assert asked == [["amqp://me:hunter@a/", "amqp://me:hunter@b/"]] and "hunter" not in str(told.value)


def test_every_command_reads_addresses_from_files(tmp_path: Path) -> None:
    """What stands in the file is looked at, and not its name."""
    DecisionLog(tmp_path / "log").close()
    wrong = tmp_path / "wrong"
    wrong.write_text("http://nobody/")
    wrong.chmod(0o600)
    log, directory = str(tmp_path / "log"), str(tmp_path / "nodes")
    for command in (
        ["dtx", "recover", "--log", log, "--broker", f"@{wrong}"],
        ["dtx", "settle-spark", "--broker", f"@{wrong}"],
    ):
        with pytest.raises(BadArgument, match=r"wrong holds what is no url of a broker: one reads amqp://"):
            app(command, standalone_mode=False)
    for option in ("--broker", "--database"):
        with pytest.raises(BadArgument, match="nothing cannot be read"):
            app(["recover", directory, option, f"@{tmp_path / 'nothing'}"], standalone_mode=False)


def test_settle_spark_with_no_url_of_a_broker() -> None:
    with pytest.raises(BadArgument, match="is no url of a broker"):
        app(["dtx", "settle-spark", "--broker", "127.0.0.1:5701"], standalone_mode=False)


@pytest.mark.parametrize("patience", ["-1", "nan", "inf"])
def test_settle_spark_with_a_patience_that_cannot_be(patience: str) -> None:
    with pytest.raises(BadArgument, match="--patience must be a finite number"):
        app(["dtx", "settle-spark", "--broker", "amqp://h/", "--patience", patience], standalone_mode=False)


def test_what_can_be_is_left_alone() -> None:
    check_brokers(["amqp://a:b@host/,amqp://other:5672/"])
    check_databases(["dbname=bank", "postgresql://me@host/bank?options=-c%20search_path%3Da"])
    check_databases(["host=a,b port=1,2", "host=a,b port=1,", "host=@txha port=1", "host=/run/a@b", "hostaddr=::1"])
    check_databases(["postgresql://me%40corp:hun%2Fter@[::1]:1,other/bank", "postgresql://%2Frun%2Fa/bank"])


@pytest.mark.parametrize(
    ("address", "without"),
    [
        ("amqp://a:x@h:1/,amqp://b:y/z@i:2/", "amqp://a@h:1/,amqp://b@i:2/"),
        ("amqp://me@corp:x@h:1/,amqp://b@i:2/", "amqp://me@corp@h:1/,amqp://b@i:2/"),
        (r"host=h password='it\'s it' user=me", "host=h password=… user=me"),
        ("host=h password=it\\ s user=me", "host=h password=… user=me"),
        ("host=h sslpassword = secret", "host=h sslpassword = …"),
        ("postgresql://me@h/db?password=x&sslmode=require", "postgresql://me@h/db?password=…&sslmode=require"),
    ],
)
def test_passwords_are_not_shown(address: str, without: str) -> None:
    assert shown(address) == without
