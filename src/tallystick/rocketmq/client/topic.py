"""A topic as its clients see it: which queues can be written and read, and which process has each. A core.

The consumers of a group share out queues without talking to each other: each has the same list of queues and of ids,
sorts both, and takes its share (AllocateMessageQueueAveragely).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tallystick.rocketmq.wire.values import MASTER_ID, MAX_QUEUES, MessageQueue, Perm, TopicRoute

NumberedConnection = tuple[str, int]  # an address, and how many connections to it ended before this one

TEMPLATE_TOPIC = "TBW102"  # a topic that does not exist yet is made after this one, where brokers allow it


@dataclass(frozen=True)
class Topic:
    """A topic's queues and brokers. ``addresses`` has the processes of a broker set by broker id."""

    name: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    left_out: tuple[str, ...] = ()  # broker sets of whose queues none is taken

    @classmethod
    def of_route(cls, name: str, route: TopicRoute) -> Topic:
        """Queues of a set without a master can be read, not written. Of more than ``MAX_QUEUES`` those of the sets with
        the most are left out, the same ones by all clients."""
        queues_by_size = sorted(route.queues, key=lambda queue: (queue.count, queue.broker))
        # each is an object here, and whoever reaches a name server can say any number
        fit = bisect_right(list(accumulate(queue.count for queue in queues_by_size)), MAX_QUEUES)
        addresses = {broker.name: dict(broker.addresses) for broker in route.brokers}
        writable: list[MessageQueue] = []
        readable: list[MessageQueue] = []
        for queue in sorted(queues_by_size[:fit], key=lambda queue: queue.broker):
            processes = addresses.get(queue.broker, {})
            if queue.perm & Perm.WRITE and MASTER_ID in processes:
                writable += (MessageQueue(name, queue.broker, id) for id in range(queue.write_queues))
            if queue.perm & Perm.READ and processes:
                readable += (MessageQueue(name, queue.broker, id) for id in range(queue.read_queues))
        left_out = tuple(sorted(queue.broker for queue in queues_by_size[fit:]))
        return cls(name, tuple(writable), tuple(readable), addresses, left_out)

    def master(self, broker: str) -> str | None:
        return self.addresses.get(broker, {}).get(MASTER_ID)


class QueueChoice:
    """Chooses the queue of a producer's next message: one after the other, past a broker that just failed."""

    def __init__(self, first: int) -> None:
        self._next = first

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """``queues`` is not empty. A failed broker is chosen all the same when there is no other."""
        queue = self._take(queues)
        for _ in queues:
            if queue.broker != avoid:
                break
            queue = self._take(queues)
        return queue

    def _take(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._next = (self._next + 1) % len(queues)
        return queues[self._next]


class BrokerChoice:
    """Chooses the process of a broker set to ask: the one suggested last, or any that did not just fail (H3, H13)."""

    def __init__(self, down_s: float) -> None:
        self._down_s = down_s
        self._down: dict[str, float] = {}  # address: until when
        self._ended_connections: dict[str, int] = {}  # address: how many connections to it ended

    def connection_lost(self, address: str) -> None:
        """A connection ended: its process may have ended too, and lost what it had not saved."""
        self._ended_connections[address] = self._ended_connections.get(address, 0) + 1

    def connection(self, address: str) -> NumberedConnection:
        """Returns the connection to this address that is used now, or next."""
        return address, self._ended_connections.get(address, 0)

    def failed(self, address: str, now: float) -> None:
        self._down[address] = now + self._down_s

    def responded(self, address: str) -> None:
        self._down.pop(address, None)

    def is_down(self, address: str, now: float) -> bool:
        """Whether the process at an address just failed."""
        return self._down.get(address, now) > now

    def choose(self, addresses: Mapping[int, str], suggested: int, now: float) -> str | None:
        """Returns an address, in the order suggested, master, slaves by id, the living first; None if there is none."""
        ids = sorted(addresses, key=lambda id: (id != suggested, id))
        live_ids = [id for id in ids if not self.is_down(addresses[id], now)]
        return addresses[(live_ids or ids)[0]] if ids else None


def share(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> list[MessageQueue]:
    """Returns my part of the queues: consecutive ones, the first members one more when they do not divide evenly."""
    sorted_queues, ids = sorted(queues), sorted(set(members))
    if own_id not in ids:
        return []
    place = ids.index(own_id)
    size, more = divmod(len(sorted_queues), len(ids))
    first = place * size + min(place, more)
    return sorted_queues[first : first + size + (place < more)]
