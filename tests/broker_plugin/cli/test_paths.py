"""A path that no file can have is told in one sentence, by each command that reads and writes files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker_plugin.cli.asking import BadArgument, paths_told
from tests.support.commands import txha_here

LONG = "n" * 300
"""A name of more bytes than a file can have"""


@pytest.mark.parametrize(
    "words",
    [
        "certificates init --dir LONG --cluster prod",
        "certificates node n --dir LONG --out out --host h",
        "certificates node n --dir ca --out LONG --host h",
        "certificates client bob --dir LONG --out out",
        "certificates list --dir LONG",
        "certificates show LONG",
        "archive --to LONG .",
        "rebuild --into into --log LONG",
        "rebuild --into into --archive LONG",
        "recover LONG",
        "audit LONG",
        "dtx recover --log LONG --broker amqp://127.0.0.1:1",
        "spark-package LONG",
    ],
)
def test_a_name_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert txha_here("certificates", "init", "--dir", "ca", "--cluster", "prod").returncode == 0
    done = txha_here(*words.replace("LONG", LONG).split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("txha: ") and LONG in done.stderr
    assert done.stderr.endswith(": File name too long\n")


def test_what_is_not_of_a_path_is_not_taken_for_it() -> None:
    with pytest.raises(BadArgument, match=r"^/root/ca cannot be used: Permission denied$"), paths_told():
        raise PermissionError(errno.EACCES, "Permission denied", "/root/ca")
    for fault in (OSError(errno.EIO, "Input/output error", "/root/ca"), PermissionError(errno.EACCES, "denied")):
        with pytest.raises(OSError) as raised, paths_told():
            raise fault
        assert raised.value is fault
