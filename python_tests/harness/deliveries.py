"""What a single delivery may not be: of something never published, too early, a second time, wrongly marked."""

from __future__ import annotations

from collections.abc import Container

from python_tests.harness.evidence import Evidence


def misplaced(evidence: Evidence) -> list[str]:
    """P5: sightings of what was never published to that queue."""
    return [f"{sighting.id} in {sighting.queue}" for sighting in evidence.elsewhere]


def seen_too_early(evidence: Evidence) -> list[str]:
    """P4: messages that were received before their commit, or their publish, had been sent."""
    found = []
    for message, sightings in evidence.seen.items():
        attempt = evidence.publisher[message]
        if attempt.commit_sent is None or sightings[0].at < attempt.commit_sent:
            found.append(f"{message} was seen in {sightings[0].queue} before its commit was sent")
    return found


def duplicates(evidence: Evidence, watched: Container[str]) -> list[str]:
    """P3: all sightings but one must be marked; and a consumer that gives nothing back never gets a message twice.

    Which one came first is known only where one consumer at a time watched: of two others, the first may record last.
    """
    found = []
    for message, sightings in evidence.seen.items():
        queue = sightings[0].queue
        unmarked = [number for number, sighting in enumerate(sightings) if not sighting.redelivered]
        if len(unmarked) > 1 or (queue in watched and any(unmarked)):
            found.append(f"{message} came {len(sightings)} times from {queue}, and again without the mark")
            continue
        sessions = [id(sighting.session) for sighting in sightings if sighting.session is not None]
        if queue in watched and len(set(sessions)) < len(sessions):
            found.append(f"{message} came twice from {queue} to the same consumer, which gave nothing back")
    return found


def wrongly_marked(evidence: Evidence, queue: str) -> list[str]:
    """P3: a message that was sent when every earlier consumer was over has not been handed to any client before."""
    history, found = evidence.history, []
    over: dict[int, float] = {}
    latest = float("-inf")
    for session in sorted((s for s in history.sessions if s.queue == queue), key=lambda s: s.began):
        over[id(session)] = latest
        latest = max(latest, history.over_by(session))
    for sighting in evidence.by_queue[queue]:
        if not sighting.redelivered or sighting.session is None or sighting is not evidence.seen[sighting.id][0]:
            continue
        sent = evidence.publisher[sighting.id].commit_sent
        if sent is not None and sent > over[id(sighting.session)]:
            found.append(f"{sighting.id} came from {queue} marked as redelivered, and no client can have had it before")
    return found
