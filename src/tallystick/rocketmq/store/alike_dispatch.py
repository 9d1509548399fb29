"""Dispatch of records that differ from those before them in little but their ids: no object for each is made.

``Reput`` takes others, and all of the records that this leaves, one by one; what comes of both is the same.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.codec.alike import AlikeRecords, scan_alike
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.store.consume_queues import ConsumeQueues
from tallystick.rocketmq.store.index import Index
from tallystick.rocketmq.store.index_file import index_hashes
from tallystick.rocketmq.store.keys import Alike, KeyHashes
from tallystick.rocketmq.store.units import UNIT
from tallystick.rocketmq.store.values import Arrival


class Dispatched(NamedTuple):
    """So many records, up to ``end`` in the data, are dispatched; the last one has the store time ``last_ms``."""

    arrivals: list[Arrival]
    record_count: int
    end: int
    last_ms: int


class AlikeDispatch:
    """Takes the first records of a piece of the log, if it can."""

    def __init__(self, hashes: KeyHashes, queues: ConsumeQueues, index: Index | None) -> None:
        self._hashes, self._queues, self._index = hashes, queues, index

    def take(self, data: bytes, base: int, most: int, now_ms: int, *, hold: bool) -> Dispatched | None:
        """Dispatch the first records of ``data``, which is at the physical offset ``base``: ``most`` of them at most,
        while they are alike, and the next ones of queues that exist. None if the first is not: nothing was done.

        ``hold``: see ``ConsumeQueue.write``. Raises DiskFull; some of the queues may have their units then.
        """
        alike = self._hashes.alike
        if alike is None or (self._index is not None and base < self._index.end_offset):
            return None
        keys = alike.keys
        records = scan_alike(data, base, alike.topic, alike.before, alike.after, keys.seed, alike.tags_code, most)
        places = None if records is None else self._places(alike, records)
        if records is None or places is None:
            return None
        _, _, hashes, physicals, stored_ms, end = records
        arrivals = []
        for queue, pieces in places:
            units = b"".join(pieces)
            queue.write(queue.filled, units, hold=hold)
            self._queues.mark(queue)
            tags_codes = [alike.tags_code] * (len(units) // UNIT.size)
            arrivals.append(Arrival(queue.topic, queue.queue_id, queue.filled, tags_codes))
        if self._index is not None:
            self._index.put(index_hashes(hashes), physicals, stored_ms, now_ms)
        return Dispatched(arrivals, len(physicals), end, stored_ms[-1])

    def _places(self, alike: Alike, records: AlikeRecords) -> list[tuple[ConsumeQueue, list[bytes]]] | None:
        """Returns each queue with its units; None if one is missing, or if its next message is another one."""
        stretches, units, *_ = records
        places: dict[int, tuple[ConsumeQueue, list[bytes]]] = {}
        nexts: dict[int, int] = {}
        at = 0
        for queue_id, first, count in stretches:
            if queue_id not in places:
                queue = self._queues.find(alike.keys.name, queue_id)
                if queue is None:
                    return None
                places[queue_id], nexts[queue_id] = (queue, []), queue.filled
            if first != nexts[queue_id]:
                return None
            nexts[queue_id], stop = first + count, at + count * UNIT.size
            places[queue_id][1].append(units[at:stop])
            at = stop
        return list(places.values())
