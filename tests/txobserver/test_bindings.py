"""Bindings against a list of them: the same ones, in the same order, whichever end goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.operations import lines_of
from txobserver.bindings import Bindings, BindingSpec, key_of
from txobserver.configuration import Configuration
from txobserver.state.invariants import check_bindings

NAMES = st.sampled_from("abc")
SPECS = st.builds(
    BindingSpec, NAMES, NAMES, st.booleans(), st.sampled_from(["", "k"]), st.sampled_from([{}, {"a": 1}, {"a": True}])
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SPECS),
        st.tuples(st.just("remove"), SPECS),
        st.tuples(st.just("from"), NAMES),
        st.tuples(st.just("to"), st.tuples(st.booleans(), NAMES)),
        st.tuples(st.just("copy"), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_bindings_like_a_list(steps: list[tuple[str, object]]) -> None:
    ours, model, copies = Bindings(), list[BindingSpec](), list[tuple[Bindings, list[BindingSpec]]]()
    for what, value in steps:
        if isinstance(value, BindingSpec):
            known = [each for each in model if key_of(each) == key_of(value)]
            assert (value in ours) == bool(known)
            if what == "add" and not known:
                ours.append(value)
                model.append(value)
            elif what == "remove" and known:
                ours.remove(value)
                model.remove(known[0]) if model.count(known[0]) == 1 else _remove(model, known[0])
        elif isinstance(value, str):
            ours.remove_from(value)
            model = [each for each in model if each.source != value]
        elif isinstance(value, tuple):
            lost = ours.remove_to(*value)
            gone = [each for each in model if (each.to_queue, each.destination) == value]
            assert sorted(lost) == sorted({each.source for each in gone})
            model = [each for each in model if (each.to_queue, each.destination) != value]
        else:
            copies.append((ours, list(model)))
            ours = ours.copy()
        assert list(map(key_of, ours)) == list(map(key_of, model)) and len(ours) == len(model)
        assert {name for name in "abc" if ours.leads_from(name)} == {each.source for each in model}
        check_bindings(ours)
    for copy, then in copies:
        assert copy == then, "copies are independent"


def _remove(model: list[BindingSpec], gone: BindingSpec) -> None:
    del model[next(at for at, each in enumerate(model) if each is gone)]


def test_a_removal_costs_what_goes() -> None:
    costs = []
    for count in (10, 1000):
        ours = Bindings(BindingSpec("e", f"q{number}", True, "", {}) for number in range(count))
        costs.append(lines_of(lambda b=ours: b.remove_to(True, "q7")))  # type: ignore[misc]
        costs.append(lines_of(lambda b=ours: b.remove(BindingSpec("e", "q5", True, "", {}))))  # type: ignore[misc]
        assert len(ours) == count - 2
    assert costs[:2] == costs[2:]


def test_a_copy_is_indexed_when_it_is_changed() -> None:
    ours = Configuration(bindings=Bindings([BindingSpec("e", "q", True, "", {})]))
    copy = ours.copy()
    assert not copy.bindings._indexed and copy == ours
    assert copy.bindings.leads_from("e") and copy.bindings._indexed
    assert repr(copy.bindings).startswith("Bindings([BindingSpec(") and copy.bindings != 1
