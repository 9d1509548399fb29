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


class QueueEndsPage(msgspec.Struct, frozen=True):
    """Some queues; ``at`` is where the log ended: records before it are counted in every end. ``first`` is where it
    begins; older versions do not say it."""

    at: Int64
    ends: list[tuple[str, Int32, Int64]]
    deleted: dict[str, Int64] = {}
    first: Int64 | None = None


class QueuePages:
    """Queues in the order in which they came, and behind them deletions."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def snapshot(self) -> int:
        return self._store.deletions

    def page(self, start: int) -> Page:
        store = self._store
        some = islice(store.next_offsets.items(), start, start + PAGE_ENTRIES)
        ends = [(topic, queue_id, end) for (topic, queue_id), end in some]
        queues, behind = len(store.next_offsets), start + PAGE_ENTRIES
        deleted = islice(store.deleted.items(), max(0, start - queues), max(0, behind - queues))
        body = QueueEndsPage(store.end, ends, dict(deleted), store.first)
        return Page(dialect.write_strict(body), behind if behind < queues + len(store.deleted) else None)
