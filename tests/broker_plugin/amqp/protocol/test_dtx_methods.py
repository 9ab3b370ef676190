"""Class dtx as bytes: every method there and back, by pamqp, and what is no method refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame

from broker_plugin.amqp.protocol.codec import decode_method, encode_method
from broker_plugin.embedded.errors import AmqpError
from txobserver import dtx_wire as dtx
from txobserver.dtx_wire import XidFields

SHORT = st.binary(max_size=255)
XIDS = st.builds(XidFields, st.integers(0, (1 << 32) - 1), SHORT, SHORT)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "Octet": st.integers(0, 255),
    "Short": st.integers(0, 65535),
    "Long": st.integers(0, (1 << 32) - 1),
    "LongLong": st.integers(0, (1 << 64) - 1),
    "ShortString": SHORT,
    "LongString": st.binary(max_size=600),
    "XidFields": XIDS,
}
METHODS = st.sampled_from(list(dtx.METHODS.values())).flatmap(
    lambda kind: st.builds(kind, **{field.name: VALUES[str(field.type)] for field in fields(kind)})
)


@given(METHODS, st.integers(1, 2047))
def test_there_and_back(method: dtx.DtxMethod, channel: int) -> None:
    data = encode_method(method, channel)
    assert frame.unmarshal(data) == (len(data), channel, method)


@given(METHODS, st.data())
def test_what_is_cut_short_or_too_long(method: dtx.DtxMethod, data: st.DataObject) -> None:
    payload = encode_method(method, 1)[7:-1]
    shorter = payload[: data.draw(st.integers(4, len(payload)))]
    bent = payload + data.draw(st.binary(min_size=1, max_size=9)) if shorter == payload else shorter
    with pytest.raises(AmqpError) as error:
        decode_method(bent)
    assert error.value.code == 501 and error.value.hard


def test_the_bytes_of_one_method() -> None:
    """As docs/dtx.md says: class, method, format-id, global-id, branch-id, and two bits in one octet."""
    data = encode_method(dtx.Start(XidFields(7, b"\xffg", b""), join=False, resume=True), 1)
    assert data == b"\x01\0\x01\0\0\0\x0d" + b"\0\x64\0\x14" + b"\0\0\0\x07" + b"\x02\xffg" + b"\0" + b"\x02" + b"\xce"


def test_every_request_has_an_answer_with_the_next_id() -> None:
    for index, method in dtx.METHODS.items():
        if method.synchronous:
            assert method.valid_responses == [dtx.METHODS[index + 1].name]
        else:
            assert dtx.METHODS[index - 1].synchronous


@given(st.lists(st.tuples(XIDS, st.integers(0, 255)), max_size=5))
def test_lists_of_branches(branches: list[tuple[XidFields, int]]) -> None:
    assert dtx.unpack_states(dtx.pack_states(branches)) == branches
    xids = [xid for xid, _ in branches]
    assert dtx.unpack_xids(dtx.pack_xids(xids)) == xids
    if xids:
        with pytest.raises(ValueError, match="ends after"):
            dtx.unpack_xids(dtx.pack_xids(xids)[:-1] + (b"" if xids[-1].branch_id else b"\x01"))
