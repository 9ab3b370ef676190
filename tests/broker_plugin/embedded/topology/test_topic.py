"""Topic patterns against the rule written down as plainly as can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.topology.topic import TopicTrie, _Lasting, words

WORDS = st.sampled_from(["a", "b", ""])
KEYS = st.lists(WORDS, max_size=5).map(".".join)
PATTERNS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), max_size=5).map(".".join)


def matches(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches(pattern[1:], key[at:]) for at in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


@given(st.lists(PATTERNS, max_size=8), st.data())
def test_matches_like_the_rule(patterns: list[str], data: st.DataObject) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    key = data.draw(KEYS)
    assert set(trie.match(key)) == {n for n, pattern in enumerate(patterns) if matches(words(pattern), words(key))}


@given(st.lists(st.tuples(PATTERNS, st.integers(0, 2)), max_size=8), st.data())
def test_what_is_removed_matches_no_more(bindings: list[tuple[str, int]], data: st.DataObject) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for binding in bindings:
        trie.add(*binding)
    kept = list(bindings)
    for binding in data.draw(st.permutations(bindings))[: data.draw(st.integers(0, len(bindings)))]:
        trie.remove(*binding)
        kept.remove(binding)
    key = data.draw(KEYS)
    assert set(trie.match(key)) == {target for pattern, target in kept if matches(words(pattern), words(key))}
    for binding in kept:
        trie.remove(*binding)
    assert not trie._root.children, "an empty trie keeps no nodes"


def test_behind_a_hash_only_words_of_the_key_are_looked_at() -> None:
    """A client may have bound thousands of others there: each publish would cost all of them."""
    trie: TopicTrie[int] = TopicTrie()
    for number in range(1000):
        trie.add(f"#.w{number}", number)
    lasting: _Lasting[int] = _Lasting(["w7", "x"])
    lasting.enter([trie._root])
    assert list(lasting.waiting) == ["w7"] and lasting.entered < 10
    assert trie.match("x.w7") == [7] and trie.visited < 10
