"""What stands in etcd under the record's key (``broker_plugin.coordination.etcd.stored``)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from broker_plugin.coordination.etcd.stored import FORMAT_VERSION, WITH_MEMBERS, RecordDamaged, decoded, encoded
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import Record
from txobserver.ids import Member

A = Member("a", "1")
BEFORE = Record("c", 3, 1, A, (A,), cluster_id="1")
SAYS = replace(BEFORE, membership=Membership(1, (ClusterNode("a", "h", 5, True, "1"),)))


def test_record_rewritten_without_members() -> None:
    """A node of an earlier version reads no record that says who is a member, and each one before that."""
    for record, form in ((BEFORE, FORMAT_VERSION), (SAYS, WITH_MEMBERS)):
        content = encoded(record, 7)
        assert msgspec.json.decode(content)["format"] == form
        assert decoded(content, "/x/record", "c", 7) == record


@pytest.mark.parametrize("form", [0, 3])
def test_a_later_format_is_not_read(form: int) -> None:
    content = msgspec.json.encode(msgspec.json.decode(encoded(SAYS, 7)) | {"format": form})
    with pytest.raises(RecordDamaged, match=f"format version {form}"):
        decoded(content, "/x/record", "c", 7)
