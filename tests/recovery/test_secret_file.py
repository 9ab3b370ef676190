"""Secrets of links in files: of their owner alone, drawn by a machine, two while one takes the other's place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ha.messages.proof import SHORTEST_SECRET
from recovery.secret_file import SecretFileError, make_link_secret, read_bytes, read_link_secrets

ONE, TWO = "1" * SHORTEST_SECRET, "2" * SHORTEST_SECRET


def holding(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return f"@{path}"


def test_a_secret_that_is_made_is_its_owner_s_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    before = os.umask(0)
    try:
        assert make_link_secret(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    (secret,) = read_link_secrets(f"@{path}")
    assert len(secret) >= 43, "32 bytes in base64"
    assert not make_link_secret(path) and read_link_secrets(f"@{path}") == (secret,), "and it is made once"
    make_link_secret(tmp_path / "other")
    assert read_link_secrets(f"@{tmp_path / 'other'}") != (secret,)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cluster.secret", "other"]


def test_a_secret_that_another_process_makes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.secret"
    link = os.link

    def late(*words: object) -> None:
        holding(path, ONE)
        link(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", late)
    assert not make_link_secret(path)
    assert read_link_secrets(f"@{path}") == (ONE.encode(),) and [each.name for each in tmp_path.iterdir()] == [
        path.name
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [(ONE, (ONE,)), (f"{ONE}\n{TWO}\n", (ONE, TWO)), (f" {ONE} {TWO} ", (ONE, TWO))],
)
def test_the_first_is_to_prove_oneself_by(tmp_path: Path, text: str, found: tuple[str, ...]) -> None:
    words = tuple(word.encode() for word in found)
    assert read_link_secrets(holding(tmp_path / "s", text)) == read_link_secrets(text) == words


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o600, "must hold one secret, or two"),
        (f"{ONE} {TWO} {ONE}", 0o600, "must hold one secret, or two"),
        ("s3cr3t" * 5, 0o600, "fewer than 32 characters"),
        (f"{ONE} s3cr3t", 0o600, "fewer than 32 characters"),
        ("s3cr3t" * 9, 0o640, "others than its owner may use"),
        ("s3cr3t" * 9, 0o602, "others than its owner may use"),
    ],
)
def test_what_will_not_do_is_refused_and_not_shown(tmp_path: Path, text: str, mode: int, sentence: str) -> None:
    with pytest.raises(SecretFileError, match=re.escape(str(tmp_path / "s"))) as found:
        read_link_secrets(holding(tmp_path / "s", text, mode))
    assert sentence in str(found.value) and "s3cr3t" not in str(found.value)
    assert found.value.__cause__ is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match="cannot be read: No such file or directory"):
        read_link_secrets(f"@{tmp_path / 's'}")


@pytest.mark.parametrize("more", [0, 1])
def test_a_longer_file_is_refused_and_not_cut(tmp_path: Path, more: int) -> None:
    """Two nodes could go by what is the same up to there, and believe that it is a secret that was pasted whole."""
    given = holding(tmp_path / "s", "x" * (65536 + more))
    if more:
        with pytest.raises(SecretFileError, match=r"is no file of a secret: it holds more than 65536 characters$"):
            read_link_secrets(given)
    else:
        assert read_link_secrets(given) == (b"x" * 65536,)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A certificate that is one would hang the start of a node without a word."""
    os.mkfifo(tmp_path / "certificate.pem")
    with pytest.raises(SecretFileError, match="is a pipe"):
        read_bytes(tmp_path / "certificate.pem")
