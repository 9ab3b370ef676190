"""What must be so of a backup's end of its attachment (``txobserver.invariants``)."""

from __future__ import annotations

from ha.backup.backup import Backup
from ha.catchup.invariants import check_replicator, check_replicator_deep
from txobserver.ids import LAST_GENERATION


def check_backup(backup: Backup) -> None:
    """Attached or not, copying or not."""
    replica, replicator, session = backup._replica, backup._replicator, backup.session
    assert session >= 0, f"P10: attachment {session}"
    assert 0 <= backup.generation <= LAST_GENERATION, f"P10: {backup.primary} is primary of {backup.generation}"
    assert backup.primary, "P10: a backup follows no primary"
    assert backup._commit >= 0, f"P11: {backup._commit} has passed the commit point"
    assert backup.progress.taken >= 0, f"P12: {backup.progress.taken} parts were taken"
    assert 0 <= backup._loss_accepted <= backup.generation, f"P2: a loss is accepted for {backup._loss_accepted}"
    if backup.attached:
        assert session > 0, "P10: attached without a number"
        assert backup.refusal is None, f"P2: attached to one that must not overwrite this store: {backup.refusal}"
    else:
        assert replicator is None, "P9: a copy goes on without an attachment"
        assert backup._reset is None, "P9: the log begins anew without an attachment"
        assert not backup.progress.taken, f"P12: {backup.progress.taken} parts were taken without an attachment"
    if replicator is None:
        assert backup._reset is None, "P9: the log begins anew without a copy"
        assert not (backup.attached and replica.resyncing), "P9: a store that is being overwritten follows the stream"
    else:
        assert replica.resyncing, "P9: a copy overwrites a store that is not marked"
        assert not replica.whole, "P9: a store that is being overwritten counts as whole"
        assert replicator._session == session, f"P7: a copy of attachment {replicator._session} goes on in {session}"
        assert backup.progress.taken <= replicator.taken, "P12: more parts are told of than were taken"
        check_replicator(replicator)
        assert backup._reset is None or replicator.ended is not None, "P9: the log begins anew before the copy is whole"
        if backup._reset is not None and replicator.ended is not None:
            following = replicator.ended.position.sequence + 1
            assert backup._reset.following == following, f"P7: the log begins anew at {backup._reset.following}"
    if backup.attached and replicator is None:
        ready = min(backup._commit, replica.durable)
        applied = replica.applied.sequence >= ready or backup._room <= 0 or replica.rests
        assert applied, f"P12: {ready} could be applied, and {replica.applied} was"


def check_backup_deep(backup: Backup) -> None:
    """All that a copy has brought."""
    if backup._replicator is not None:
        check_replicator_deep(backup._replicator)
