"""What other nodes' logs hold that the chosen node does not, also behind damage: events, and gaps where some were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from recovery.planner.facts import Loss, StoreCondition, SurveyedStore, Unnamed
from recovery.planner.losses import Located, losses
from recovery.planner.survey import Surveyed
from recovery.store.groups import behind_group_headers
from recovery.store.segment import HEADER_ROOM, decode_header, segment_firsts, segment_path
from txobserver.frames import Frame, FrameError, TornFrame, decode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreError
from txobserver.vhosts import shown_name

Key = tuple[int, int]
"""Generation and first sequence of a frame, which is the same on every node that has it"""


def salvaged(directory: Path) -> Iterator[Frame | None]:
    """Every whole frame of a log in order, whatever stands between them; None in the end if there it is no frame."""
    firsts = segment_firsts(directory / "log")
    for first in firsts:
        path = segment_path(directory / "log", first)
        data = path.read_bytes()
        try:
            _, at = decode_header(data[:HEADER_ROOM], path)
        except (TornFrame, StoreError):
            at = 0
        while (at := behind_group_headers(data, at)) < len(data):
            try:
                frame, at = decode_frame(data, at)
                yield frame
            except FrameError:
                at = data.find(b"TXHA", at + 1)
                if at < 0:
                    if first == firsts[-1]:
                        yield None
                    break


def unshared(chosen: SurveyedStore, stores: Sequence[Surveyed]) -> tuple[list[Loss], list[Unnamed]]:
    """What the chosen store lacks, by name, and what cannot be named; each told of the first node that has it."""
    others = [
        each for each in stores if each.facts.node != chosen.node and each.facts.condition is not StoreCondition.FOREIGN
    ]
    others.sort(key=lambda each: each.facts.tail, reverse=True)
    holders: dict[Key, list[str]] = {}
    unnamed: list[Unnamed] = []
    for each in others:
        unnamed += _count(each, chosen, holders)
    found: list[Loss] = []
    for each in others:
        if any(each.facts.node == nodes[0] for nodes in holders.values()):
            found += losses(_located(each, holders), _queue_names(each))
    return sorted(found, key=lambda loss: loss.position), unnamed


def _count(each: Surveyed, chosen: SurveyedStore, holders: dict[Key, list[str]]) -> list[Unnamed]:
    """Note the frames that the chosen store lacks; returns the gaps between and around them."""
    store = each.facts
    at = _shared(store, chosen) + 1
    gaps: list[tuple[int, int | None]] = []
    open_end = False
    for frame in salvaged(each.directory):
        if frame is None:
            open_end = not store.complete
            continue
        if not chosen.holds(frame.position):
            nodes = holders.setdefault((frame.generation, frame.first), [])
            if store.node not in nodes:
                nodes.append(store.node)
        if frame.last >= at:
            if frame.first > at:
                gaps.append((at, frame.first - 1))
            at = frame.last + 1
    if at <= store.tail.sequence:
        gaps.append((at, store.tail.sequence))
        at = store.tail.sequence + 1
    if open_end:
        gaps.append((max(at, chosen.tail.sequence + 1), None))
    damaged = store.condition is StoreCondition.DAMAGED
    why = "its log is damaged there" if damaged else "its log does not hold them any more"
    found = [Unnamed(node=store.node, first=first, last=last, why=why) for first, last in gaps]
    return [gap for gap in found if gap.last is None or gap.last > chosen.tail.sequence]


def _shared(store: SurveyedStore, chosen: SurveyedStore) -> int:
    """Up to which sequence the two are the same, as far as that is known."""
    ends = [start.sequence - 1 for start in store.history] + [store.tail.sequence, chosen.tail.sequence]
    return max((end for end in ends if end and _same_at(end, store, chosen)), default=0)


def _same_at(sequence: int, store: SurveyedStore, chosen: SurveyedStore) -> bool:
    generation = store.generation_at(sequence)
    return sequence <= store.tail.sequence and bool(generation) and chosen.holds(Position(generation, sequence))


def _located(each: Surveyed, holders: dict[Key, list[str]]) -> Iterator[Located]:
    """Every event of the log that is left, behind the transactions that were open at the checkpoint."""
    store = each.facts
    began = each.loaded.transactions if each.loaded is not None else {}
    for parts in began.values():
        for sequence, part in parts:
            yield Located(Position(store.generation_at(sequence), sequence), part, False, (store.node,))
    for frame in salvaged(each.directory):
        if frame is None:
            return
        nodes = holders.get((frame.generation, frame.first), [])
        lost = bool(nodes) and nodes[0] == store.node
        for offset, event in enumerate(frame.events()):
            position = Position(frame.generation, frame.first + offset)
            if getattr(event, "tx", None) in began and position.sequence <= store.applied.sequence:
                continue  # it stands in the checkpoint
            yield Located(position, event, lost, tuple(nodes))


def _queue_names(each: Surveyed) -> dict[int, str]:
    if each.loaded is None:
        return {}
    return {spec.number: shown_name(spec.name) for spec in each.loaded.meta.configuration.queues.values()}
