"""Where a master's queues end and which topics it deleted, by pages, for slaves of ours (``pages.PagedTable``).

A slave may have a part of the log only, and never see most queues. Should it become a master, their offsets go on where
they ended here (rmq#8539). Deletions come with their place in the log, which is the same place in the slave's.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from tallystick.rocketmq.broker.pages import Page
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import Int32, Int64

QUEUE_ENDS = "queueEnds"
PAGE_ENTRIES = 4096
_DELETION_PLACES = 1 << 40  # the place of the first deletion: whatever queues come meanwhile, it is theirs alone


class QueueEndsPage(msgspec.Struct, frozen=True):
    """Some queues with their ends. ``at`` is where the log ended: records before it are counted in every end. ``first``
    is where it begins, None from older versions."""

    at: Int64
    ends: list[tuple[str, Int32, Int64]]
    deleted: dict[str, Int64] = {}
    first: Int64 | None = None


class QueuePages:
    """The pages of the ends of queues, in the order in which these came, and behind them those of deletions."""

    snapshot = 0  # it is the same table in the process's whole life

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def page(self, start: int) -> Page:
        store, first = self._store, 0 if start < _DELETION_PLACES else _DELETION_PLACES
        index = max(0, start - first - store.replicated.removals)
        ends: list[tuple[str, int, int]] = []
        deleted: dict[str, int] = {}
        if first:
            deleted = dict(islice(store.replicated.deletions.items(), index, index + PAGE_ENTRIES))
        else:
            some = islice(store.replicated.next_offsets.items(), index, index + PAGE_ENTRIES)
            ends = [(topic, queue_id, end) for (topic, queue_id), end in some]
        index += len(ends) + len(deleted)
        at: int | None = first + index + store.replicated.removals
        if index >= len(store.replicated.deletions if first else store.replicated.next_offsets):
            at = None if first or not store.replicated.deletions else _DELETION_PLACES
        return Page(dialect.write_strict(QueueEndsPage(store.end, ends, deleted, store.first)), at)
