"""Opening a store: where the log ends, what is damage, and from where queues and index are built again.

After a crash the log's tail may be torn, and only the tail. ``tally-synced`` says what was durable: damage below that
is refused, above it the log ends at the first record that is not whole (R5). The newest sync may have been interrupted:
if the log does not have its bytes as they were, what it was to make durable is part of the tail. In a directory that an
original broker left there is no such file: its checkpoint and abort file tell where to begin, and a bad record that
good ones follow is damage. What was cut, and what queues and index had of it, is gone from the disk before anything is
served (R4). Sources: ``CommitLog.recoverNormally``, ``recoverAbnormally``, ``DefaultMessageStore.load``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, replace

from tallystick.codec.checksum import crc32c
from tallystick.codec.records import SMALLEST, Stop
from tallystick.errors import CorruptRecord
from tallystick.rocketmq.store.checkpoint import Checkpoint
from tallystick.rocketmq.store.consume_queues import list_queues
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.scan import Chunk, chunks, claimed_size, find_record
from tallystick.rocketmq.store.synced import SyncedFile, SyncRecord
from tallystick.rocketmq.store.units import FILLER_SIZE, UNIT
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events

_COPY_BYTES = 1024 * 1024
_STORED_AT, _BORN_V6, _V6_EXTRA = 56, 16, 12


@dataclass(frozen=True)
class LogRecovery:
    """The result of a recovery: the log is durable up to ``end``, and records before ``dispatch_from`` are in queues
    and index, durably."""

    end: int
    dispatch_from: int
    start: int


def recover_log(
    disk: Disk,
    files: FileQueue,
    queues_root: str,
    queue_file_bytes: int,
    sidecar: SyncedFile,
    checkpoint: Checkpoint,
    index_discarded_from: int | None,
    *,
    slave: bool,
    clean: bool,
    events: Events,
) -> LogRecovery:
    """Find the log's end and make it the end on the disk too. ``files`` are loaded, not mapped. The index has nothing
    of the records from ``index_discarded_from`` on, wherever the original would begin. ``slave``: what the store is
    opened for."""
    sync_record = sidecar.value
    durable = durable_end(files, sync_record) if sync_record else 0
    first = max(files.first, sync_record.start if sync_record else 0)
    if sync_record is not None:
        scan_from, dispatch_from = (
            max(min(sync_record.border, sync_record.dispatched), first),
            max(sync_record.dispatched, first),
        )
        if not files.files and sync_record.synced > sync_record.start:
            raise _damage(
                files, sync_record.start, f"there are no files, and the log was durable up to {sync_record.synced}"
            )
    elif clean:
        dispatch_from = max(_dispatched_end(disk, queues_root, queue_file_bytes), files.first)
        scan_from = _file_start(files, dispatch_from)
    else:
        scan_from = dispatch_from = _restart_point(files, checkpoint)
        if index_discarded_from is not None:
            scan_from = dispatch_from = min(dispatch_from, _file_start(files, index_discarded_from))
    end = _find_end(files, scan_from, sync_record, durable, events)
    if sync_record is not None and end == first and not sync_record.start < sync_record.synced < files.first:
        return _begin_anew(files, sidecar)
    dispatch_from = min(dispatch_from, end)
    start = sync_record.start if sync_record else 0
    # An original deleted all messages, and goes on here; or power loss took the first file, which was not synced. Of a
    # master that is not noted: were this start interrupted before its first batch, the next one would take the log for
    # a slave's copy, which alone begins behind messages that its master has.
    took_first_file = slave and sync_record is not None and durable <= start < files.first
    if end == files.first or took_first_file:
        start = files.first
    now = replace(
        sync_record or SyncRecord(),
        dispatched=dispatch_from,
        border=min(scan_from, dispatch_from),
        start=start,
        file_bytes=files.file_bytes,
    ).settle_at(end, end)
    if end < durable or not clean or sync_record is None or end != sync_record.synced:
        _write_again(files, sync_record.synced if sync_record else end, end)
        if end < durable:
            sidecar.write(now)  # before the cut: a crash between the two must not find damage
        files.cut(end)
    sidecar.write(now)
    return LogRecovery(end, dispatch_from, now.start)


def durable_end(files: FileQueue, sync_record: SyncRecord) -> int:
    """Returns up to where the log was synced: the newest sync counts if its bytes are there, whether or not it
    returned."""
    if sync_record.end <= sync_record.synced:
        return sync_record.synced
    crc, offset = 0, sync_record.synced
    while offset < sync_record.end and (piece := files.read(offset, min(_COPY_BYTES, sync_record.end - offset))):
        crc = crc32c(piece, crc)
        offset += len(piece)
    return sync_record.end if offset == sync_record.end and crc == sync_record.crc else sync_record.synced


def _find_end(files: FileQueue, scan_from: int, sync_record: SyncRecord | None, durable: int, events: Events) -> int:
    end, stop = scan_from, Stop.END
    for chunk in chunks(files, scan_from):
        end, stop = chunk.end, chunk.run.stop
        if (torn_at := _unwritten(chunk, None if sync_record is None else durable)) is not None:
            end, stop = torn_at, Stop.DAMAGED
            break
    if stop is Stop.BLANK:
        end = files.limit
    whole = 0 if sync_record is None else _whole(sync_record)
    if sync_record is not None and end < durable and not is_torn(files, end, whole, durable):
        raise _damage(files, end, f"it was synced, the log is durable up to {durable}")
    if sync_record is None and (good := find_record(files, end)) is not None:
        raise _damage(files, end, f"good records follow from offset {good}")
    if stop is Stop.DAMAGED:
        interrupted = sync_record is not None and durable < sync_record.end
        reason = "the last sync did not return" if interrupted else "the last record is not whole"
        events.emit("log cut", offset=end, reason=reason)
    return end


def _begin_anew(files: FileQueue, sidecar: SyncedFile) -> LogRecovery:
    """No record is there and none was durable: the files that are there, wherever they begin, are no log.

    The file made in reserve outlives the one before it when power loss takes that one's name. Taken for a log it would
    send a slave to a place that its master may not reach for long, and the queues' units of what is lost would pass for
    those of deleted messages.
    """
    sidecar.write(SyncRecord(file_bytes=files.file_bytes))  # first: without it, files that are gone are damage
    files.clear()
    return LogRecovery(0, 0, 0)


def _unwritten(chunk: Chunk, durable: int | None) -> int | None:
    """Where the first record is that ends with zeros which were never written.

    No checksum covers topic and properties; but no topic ends so, and no properties that we store. What is ``durable``
    was written; None, without the sidecar: it can only be the last one of all.
    """
    run = chunk.run
    if durable is not None:
        durable_bytes, ends = durable - chunk.offset, lambda number: run.positions[number] + run.sizes[number]
        first = bisect_right(range(len(run)), durable_bytes, key=ends)
    else:
        first = len(run) - 1 if len(run) and run.stop is Stop.NOTHING else len(run)
    for number in range(first, len(run)):
        if run.topics[number].endswith(b"\0") or run.properties[number].endswith(b"\0"):
            return chunk.offset + run.positions[number]
    return None


def _whole(sync_record: SyncRecord) -> int:
    """Returns where the last record ends that is known to be whole on the disk. Queues may be ahead of the log's sync,
    and what was dispatched then says nothing of what is below."""
    dispatched = sync_record.dispatched if sync_record.dispatched <= sync_record.synced else 0
    return max(sync_record.tail, dispatched)


def is_torn(files: FileQueue, offset: int, tail: int, durable: int) -> bool:
    """Whether of the record there only a part was synced, as happens where a slave takes the log in pieces.

    Below ``tail`` records were whole. A size that one flipped bit makes large does not pass for a part: no whole
    record can lie in one.
    """
    if offset < tail:
        return False
    if offset + SMALLEST > durable:
        return True
    size = claimed_size(files, offset)
    if size is None or offset + size <= durable:
        return False
    next_record = find_record(files, offset)
    return next_record is None or next_record >= durable


def _damage(files: FileQueue, offset: int, reason: str) -> CorruptRecord:
    file = files.find(offset)
    return CorruptRecord(
        f"a record of the CommitLog is damaged or missing: {reason}. Nothing was changed. Restore the file from a copy "
        "(a slave's has the same bytes), or check the store and decide what to give up",
        path=file.path if file else files.directory,
        offset=offset,
        position=offset - (file.start if file else 0),
    )


def _write_again(files: FileQueue, synced_end: int, end: int) -> None:
    """Make the log durable up to ``end``.

    What was not synced is written once more: after a sync that failed it may be in memory alone and called clean, and
    so it is after one that did not return and a kill, though its CRC says that all bytes are there.
    """
    start = offset = max(min(synced_end, end), files.first)  # a slave's log begins anywhere
    while offset < end:
        file_end = offset + files.file_bytes - offset % files.file_bytes
        data = files.read(offset, min(_COPY_BYTES, end - offset, file_end - offset))
        files.write([data], offset)
        offset += len(data)
    files.sync(start, end)


def _file_start(files: FileQueue, offset: int) -> int:
    """Returns where the file with ``offset`` begins, which is the start of a record."""
    return max(files.first, min(offset - offset % files.file_bytes, files.limit - files.file_bytes))


def _restart_point(files: FileQueue, checkpoint: Checkpoint) -> int:
    """Returns the file from which an original's directory is to be checked and dispatched after a crash."""
    if files.first < checkpoint.dispatch_from <= files.limit:
        return _file_start(files, checkpoint.dispatch_from)
    for file in reversed(files.files):
        head = file.file.read(SMALLEST, 0)
        if claimed_size(files, file.start) is not None:
            at = _STORED_AT + (_V6_EXTRA if int.from_bytes(head[36:40], "big") & _BORN_V6 else 0)
            if int.from_bytes(head[at : at + 8], "big") <= checkpoint.min_ms:
                return file.start
    return files.first


def _dispatched_end(disk: Disk, root: str, queue_file_bytes: int) -> int:
    """Returns the end of the last record that any queue has, after an orderly stop."""
    dispatched_end = 0
    for topic, queue_id in list_queues(disk, root):
        files = FileQueue(disk, os.path.join(root, topic, str(queue_id)), queue_file_bytes)
        files.load(tail=None)
        low, high = files.first // UNIT.size, files.limit // UNIT.size
        while low < high:
            middle = (low + high) // 2
            if UNIT.unpack(files.read(middle * UNIT.size, UNIT.size))[1] > 0:
                low = middle + 1
            else:
                high = middle
        if low > files.first // UNIT.size:
            offset, size, _ = UNIT.unpack(files.read((low - 1) * UNIT.size, UNIT.size))
            dispatched_end = max(dispatched_end, offset + size if size != FILLER_SIZE else 0)
        files.close()
    return dispatched_end
