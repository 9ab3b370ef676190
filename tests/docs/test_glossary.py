"""docs/glossary.md: each term is used, classes that it names exist, and the words that it replaces are gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.prose import PAGES, ROOT, name_of, words_of

PAGE = ROOT / "docs" / "glossary.md"
ROWS = re.findall(r"^\| ([^|]+?) \| ([^|]+\.) \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
TERMS = [term for term, _, _ in ROWS]
REPLACED = re.findall(r"^\| ([a-z ]+) \| (\w+)[^|]*\|$", PAGE.read_text().partition("\n## ")[2], re.MULTILINE)
PACKAGES = ("txobserver", "ha", "recovery", "broker_plugin", "txha")

FIELD = {"offset", "credit", "delivery watermark", "throttle", "deadline"}
"""The field's words, each of which replaces a word of the authors."""

PROTOCOL = {"branch", "commit point", "generation", "lease", "member", "position", "ready set", "replication id"} | {
    *("standalone", "joining", "catchup", "ready", "recovering", "active", "joiner", "primary", "backup", "tx-queue"),
    *("TxBuffer", "TxTracker", "guard", "xid", "min_ready", "heuristic decision", "handover", "take-over"),
}
"""Without these no page of the protocol can be read."""

BANNED = {
    "night": r"\bnights?\b",
    "somebody": r"\bsomebody\b",
    "whoever": r"\bwhoever\b",
    "whomever": r"\bwhomever\b",
    "nobody": r"\bnobody\b",
    "appetite": r"\bappetites?\b",
    "shown the door": r"\bshow(?:n|s)? the door\b",
    "told of": r"\b(?:is|are|was|were) told of\b",
    "pace": r"\bpaced?\b",
    "patience": r"\bpatien(?:ce|t)\b",
    "place": r"\bplaces? and ids?\b|\bplaces? in (?:its|their|the|a) queues?\b|\bmessages?'s? places?\b",
    "mark": r"\bdeliver(?:y|ed)[ -]marks?\b|\bmarks? of (?:the|its|every|a) (?:delivery|queue)\b",
}
"""Words that documents do not use, as they would stand there."""

ALLOWED: dict[tuple[str, str], int] = {
    ("docs/recovery.md", "nobody"): 1,  # a value in plans, which are kept
}
"""How often a page may use a word all the same; every entry needs a reason beside it."""


def _source() -> str:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(path.read_text() for path in paths)


SOURCE = _source()
CLASSES = set(re.findall(r"^\s*class (\w+)", SOURCE, re.MULTILINE))
TEXT = "\n".join(page.read_text() for page in sorted((ROOT / "docs").rglob("*.md")) if page != PAGE) + SOURCE


def test_terms_are_sorted_and_stand_once() -> None:
    assert len(TERMS) > 50 and sorted(set(TERMS), key=str.lower) == TERMS


@pytest.mark.parametrize(("term", "meaning"), [(term, meaning) for term, meaning, _ in ROWS])
def test_a_term_is_one_sentence(term: str, meaning: str) -> None:
    assert not re.search(r"[.!?] [A-Z]", meaning) and meaning[0].isupper(), f"{term}: one sentence"


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_used(term: str) -> None:
    assert re.search(rf"\b{re.escape(term)}", TEXT, re.IGNORECASE), f"{term} is defined and not used"


@pytest.mark.parametrize(("term", "more"), [(term, more) for term, _, more in ROWS])
def test_a_term_leads_on(term: str, more: str) -> None:
    numbers = re.findall(r"\bP(\d+)\b", more)
    assert "](" in more and all(1 <= int(number) <= 12 for number in numbers), f"{term} leads nowhere"


def test_classes_that_are_named_exist() -> None:
    named = {name for _, meaning, _ in ROWS for name in re.findall(r"`([A-Z]\w+)`", meaning)}
    assert len(named) > 10 and not named - CLASSES, f"there is no {named - CLASSES}"


def test_the_field_s_words_are_defined() -> None:
    assert set(TERMS) >= FIELD | PROTOCOL
    assert {word for word, _ in REPLACED if word != "word"} == FIELD


def test_every_word_that_is_replaced_is_banned() -> None:
    assert {word for _, word in REPLACED if word != "not"} <= set(BANNED)


@pytest.mark.parametrize("page", [page for page in PAGES if page != PAGE], ids=name_of)
def test_words_that_are_replaced_are_gone(page: Path) -> None:
    text = words_of(page.read_text())
    for word, pattern in BANNED.items():
        found = re.findall(pattern, text, re.IGNORECASE)
        assert len(found) == ALLOWED.get((name_of(page), word), 0), f"{word}: {found}"


def test_words_in_code_are_not_prose() -> None:
    assert not re.search(BANNED["patience"], words_of("`--patience 60` and\n```\npatience\n```\n[a](patience.md)"))
    assert re.search(BANNED["patience"], words_of("its patience"))
    assert re.search(BANNED["place"], "a message's place") and not re.search(BANNED["place"], "takes place")
