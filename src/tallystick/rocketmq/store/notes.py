"""What a store of ours wrote beside its log, as it is when the store is opened: how far the log was synced, and what
queues and index had at the last batch. Nothing but these files is read here, and none is changed."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.rocketmq.store.checkpoint import CheckpointFile
from tallystick.rocketmq.store.queue_state import QueueState, QueueStateFile
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.synced import SyncedFile, SyncRecord
from tallystick.rocketmq.store.units import UNIT
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events


@dataclass(frozen=True)
class Notes:
    """``sync_record`` and ``queue_state`` are what the files said; ``are_there``: else only an original broker had the
    store.

    ``are_trusted``: queues may be taken as the last batch has them. Whoever else wrote this store did not append one.
    """

    sidecar: SyncedFile
    checkpoint: CheckpointFile
    state_file: QueueStateFile
    sync_record: SyncRecord | None
    queue_state: QueueState
    are_there: bool
    are_trusted: bool


def read_notes(disk: Disk, directory: str, settings: StoreSettings, events: Events) -> Notes:
    """Raises UsageError where the settings are not those that the store was made with."""
    sidecar, checkpoint = SyncedFile(disk, directory), CheckpointFile(disk, directory)
    sync_record = sidecar.value
    state_file = QueueStateFile(disk, directory, sync_record.queues if sync_record else (0, 0))
    queue_state = state_file.state or QueueState()
    if state_file.damage is not None:
        events.emit(
            "tally-queues damaged",
            directory=directory,
            reason=state_file.damage,
            deletions_kept=len(queue_state.deletions),
            effect="all queues are built again from the log; deletions noted there may be forgotten",
        )
    _check_settings(settings, sync_record, queue_state)
    are_trusted = (
        state_file.damage is None
        and sync_record is not None
        and bool(queue_state.file_units)
        and queue_state.file_units == settings.consume_queue_file_units
        and queue_state.dispatched >= sync_record.dispatched
    )
    are_there = sync_record is not None or state_file.state is not None
    return Notes(sidecar, checkpoint, state_file, sync_record, queue_state, are_there, are_trusted)


def _check_settings(settings: StoreSettings, sync_record: SyncRecord | None, queue_state: QueueState) -> None:
    """Before any file is touched: those of another size would be cut, or filled up with zeros.

    Raises UsageError.
    """
    log_bytes, queue_bytes = settings.commit_log_file_bytes, settings.consume_queue_file_units * UNIT.size
    if sync_record is not None and sync_record.file_bytes != log_bytes:
        raise UsageError(
            "the store was made with another size of CommitLog files: set mappedFileSizeCommitLog",
            expected=sync_record.file_bytes,
            size=log_bytes,
        )
    made_with = queue_state.file_units * UNIT.size
    if queue_state.queues and made_with and made_with != queue_bytes:
        raise UsageError(
            "the store was made with another size of queue files: set mappedFileSizeConsumeQueue",
            expected=made_with,
            size=queue_bytes,
        )
