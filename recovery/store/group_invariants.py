"""What must be so of a group's header before the group is written (``txobserver.invariants``)."""

from __future__ import annotations

from recovery.store.groups import GROUP_HEADER_SIZE, GroupHeader


def check_group_header(header: GroupHeader | None, offset: int, size: int) -> None:
    """A group's header, read back from the bytes that are written."""
    assert header is not None, f"P11: the group at {offset} has no header that can be read"
    assert header.offset == offset, f"P11: the group at {offset} says that it stands at {header.offset}"
    assert header.size == size, f"P11: the group at {offset} has {size} bytes, and says {header.size}"
    assert header.end == offset + GROUP_HEADER_SIZE + size, f"P11: the group at {offset} ends at {header.end}"
    assert header.zeros >= 0, f"P11: the group at {offset} has {header.zeros} sectors of zeros"
