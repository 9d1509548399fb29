"""The takeover: the store of a running slave becomes a master's, as it would by being opened as one.

The end of its log is that of a record, all records are in queues and index, and one checkpoint notes all of it together
with what ``promotion`` settles: a crash leaves a slave's store or a master's.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.errors import StorageError
from tallystick.rocketmq.store.opening import StoreParts
from tallystick.rocketmq.store.promotion import promote
from tallystick.rocketmq.store.queue_state import QueueState
from tallystick.rocketmq.store.upkeep import Upkeep
from tallystick.rocketmq.store.values import Arrival
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

_REPUT_BYTES = 1024 * 1024  # in one hold of its lock


def take_over(parts: StoreParts, state: QueueState, upkeep: Upkeep, clock: Clock, events: Events) -> list[Arrival]:
    """Make the store a master's, on the thread of the upkeep, while nothing is appended; ``check_promotion`` has passed
    ``state``. Returns what became readable.

    Raises StorageError: it is a slave's store still, and this may be tried again, unless the log failed.
    """
    arrivals = _dispatch(parts, clock)
    _end_log(parts)
    reput, log, queues = parts.reput, parts.log, parts.queues
    with reput.lock:
        queue_state = replace(state, deletions={**state.deletions, **reput.deleted_topics.offsets})
        for queue in promote(queue_state, queues, log.end, events):
            queues.mark(queue)
    upkeep.save(
        ends=[], begin_offset=0, ends_at=-1, master_first=None, deletions=queue_state.deletions, deletions_told_by=""
    )
    with reput.lock:
        reput.deleted_topics.follow("", log.end)
    return arrivals


def _dispatch(parts: StoreParts, clock: Clock) -> list[Arrival]:
    """Dispatch all whole records: a message without a place in its queue would give that to the master's first.

    The loop dispatches too meanwhile, so what Reput says of itself holds only under its lock; and what it leaves goes
    with ``_end_log``, so only the log's bytes tell that this is a part of a record.
    """
    reput, log = parts.reput, parts.log
    arrivals = list[Arrival]()
    while True:
        before = reput.offset
        arrivals += reput.run(log.end, _REPUT_BYTES, clock.wall_ms())
        with reput.lock:
            if log.is_partial(reput.offset):
                log.record_parsed(reput.offset)
                return arrivals
            if reput.offset == before and not reput.filling:
                reason = reput.stuck or "what is left of its log is neither a record nor a part of one"
                raise StorageError(f"the store cannot be a master's now: {reason}", offset=before)


def _end_log(parts: StoreParts) -> None:
    """Cut off the part of a last record: its master told no producer that this slave has it."""
    parts.log.flush()
    with parts.reput.lock:
        if parts.reput.offset < parts.log.end:
            parts.log.cut(parts.reput.offset)
