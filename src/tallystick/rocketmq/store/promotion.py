"""A slave's store becomes a master's: its queues go on behind the ends that its master had (rmq#8539).

What was the master's alone is settled in one batch: where its queues ended, where the copy of its log began, and which
topics it deleted. ``Opening`` does that for a store that is opened as a master's, and ``MessageStore.promote`` for one
that runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.errors import UsageError
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.queue_state import Queue, QueueState
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.events import Events


def check_promotion(queue_state: QueueState, settings: StoreSettings, directory: str) -> None:
    """Raises UsageError if it is not known where the queues of the master ended."""
    if queue_state.ends_known or settings.ends_may_be_unknown:
        return
    raise UsageError(
        "this store is a slave's copy of a part of its master's log, and it was never told where the master's "
        "queues end: as a master it would give queue offsets out again, and consumers would pass over new "
        "messages. Start it as a slave while its master runs, for half a minute, or accept that with "
        "queueEndsMayBeUnknown=true",
        path=directory,
        begun=queue_state.begin_offset,
        told_at=queue_state.ends_at,
    )


def promote(queue_state: QueueState, queues: ConsumeQueues, log_end: int, events: Events) -> list[ConsumeQueue]:
    """Make the queue state a master's: queue offsets that the master gave out are not given out again, whether its log
    is here or not. Returns the queues whose ends the master had told, to be noted together with it."""
    advanced = advance(queue_state.ends, queues)
    if queue_state.begin_offset or advanced:
        events.emit("slave becomes master", queues=len(advanced), end=log_end, told_at=queue_state.ends_at)
    queue_state.ends, queue_state.begin_offset, queue_state.ends_at, queue_state.master_first = {}, 0, -1, None
    # Deletions that this log did not reach took all that it has of their topics; what comes now is new.
    queue_state.deletions_told_by = ""
    queue_state.deletions = {topic: min(offset, log_end) for topic, offset in queue_state.deletions.items()}
    return advanced


def advance(ends: Mapping[Queue, int], queues: ConsumeQueues) -> list[ConsumeQueue]:
    """Let queues go on behind where their master's ended. Returns them."""
    advanced = [(queues.of(*key), end) for key, end in ends.items() if end > 0]
    for queue, end in advanced:
        queue.advance(end)
    return [queue for queue, _ in advanced]
