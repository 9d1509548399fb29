"""Which client of a group has the lock of which queue, for consumption in order (``RebalanceLockManager``): a core.

A lock ends 60 s after its owner last asked for it. The number of locks is bounded. A client that is no member of the
group that it names gets none beyond a quarter of the bound, so strangers take no member's place; and no host gets more
than three quarters.

A client goes on for 30 s with a lock of a master that is away. So owners are saved (``tallyLocks.json``) before they
get the response, and after a restart they have their locks for 60 s more. A master that was a slave does not know who
had locks, and gives none for so long.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.values import MessageQueue

LIVE_S = 60.0
MAX_LOCKS = 100_000  # places of all groups: no more are given until some end
PLACE_BYTES = 256  # of its line in the file that a lock has for one place: a longer line takes several
_MOST_PRUNED = 5_000  # ended locks that go when one is asked for: some milliseconds
_STEP_PRUNED = 5  # of them, in one step
_LINES = 64  # of the file, in one piece, whatever groups they are of
_LOOKED_AT = 1000  # locks, in one step


class SavedLock(msgspec.Struct, frozen=True):
    """One line of the file."""

    group: str
    queue: MessageQueue
    client_id: str
    host: str


class LockTable(msgspec.Struct, frozen=True):
    """The content of tallyLocks.json."""

    locks: list[SavedLock] = []


@dataclass(eq=False, slots=True)
class _QueueLock:
    group: str
    queue: MessageQueue
    client_id: str
    host: str
    asked_at: float
    number: int  # of the change that made it
    places: int


class QueueLocksCore:
    """The locks by group and queue; ``now`` is an argument. ``dirty``: saved owners went. ``changes`` counts new
    owners."""

    def __init__(
        self,
        saved: LockTable | None = None,
        now: float = 0.0,
        *,
        quiet_s: float = 0.0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called when a queue has a new owner, which gets its response when that is saved. The rest is
        as for ``begin``."""
        self._changed, self.changes = changed, 0
        self.left_out = 0  # locks for which there was no room, since the start
        self.begin(saved, now, quiet_s=quiet_s)

    def begin(self, table: LockTable | None = None, now: float = 0.0, *, quiet_s: float = 0.0) -> None:
        """Begin anew with the locks of ``table``. For ``quiet_s`` no lock is given, as nobody knows who has one."""
        self._quiet_until, self.dirty = now + quiet_s, False
        self._groups: dict[str, dict[MessageQueue, _QueueLock]] = {}  # the one asked for last is last
        self._by_age: OrderedDict[_QueueLock, None] = OrderedDict()  # of all groups; the one asked for last is last
        self._hosts: Counter[str] = Counter()  # places by the host of the owner
        self._places = 0
        for lock in table.locks if table is not None else ():
            locks = self._groups.setdefault(lock.group, {})
            if lock.queue not in locks:  # as somebody may have edited the file
                self._put(locks, _QueueLock(lock.group, lock.queue, lock.client_id, lock.host, now, 0, _places(lock)))

    def __len__(self) -> int:
        return len(self._by_age)

    def has_room(self, host: str, *, is_member: bool = True) -> bool:
        """Whether a client of that host may have one more lock."""
        quarter = MAX_LOCKS // 4
        return self._places < (MAX_LOCKS if is_member else quarter) and self._hosts[host] < MAX_LOCKS - quarter

    def lock(
        self,
        group: str,
        client_id: str,
        host: str,
        queues: Iterable[MessageQueue],
        now: float,
        *,
        is_member: bool = True,
    ) -> list[MessageQueue]:
        """Lock these queues for a client at ``host``, or renew its locks. Returns those of them that it has now.

        What has ended makes room before, of very many locks some; call ``prune`` from time to time.
        """
        for _ in islice(self.prune(now), _MOST_PRUNED // _STEP_PRUNED):
            pass
        locks = self._groups.get(group, {})
        locked_queues, number = [], self.changes + 1
        for queue in queues if now >= self._quiet_until else ():
            lock = locks.get(queue)
            if lock is None and not self.has_room(host, is_member=is_member):
                self.left_out += 1
                continue
            live_lock = lock if lock is not None and _lives(lock, now) else None  # one that ended may be in no file
            if live_lock is None or live_lock.client_id == client_id:
                if lock is not None:
                    del locks[queue]
                    self._remove(lock)
                if live_lock is None:
                    self.changes, places = number, _places(SavedLock(group, queue, client_id, host))
                    self._put(locks, _QueueLock(group, queue, client_id, host, now, number, places))
                else:
                    self._put(locks, replace(live_lock, host=host, asked_at=now))
                locked_queues.append(queue)
        if locks:
            self._groups[group] = locks
        if self.changes == number:
            self._changed()
        return locked_queues

    def newest(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> int:
        """Returns the number of the last change by which the client has one of these queues: its response waits until
        that is saved."""
        locks = self._groups.get(group, {})
        own_locks = (locks.get(queue) for queue in queues)
        return max((lock.number for lock in own_locks if lock is not None and lock.client_id == client_id), default=0)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back those of these queues that the client has."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._remove(lock)
                self.dirty = True
        if not locks:
            self._groups.pop(group, None)

    def text(self, now: float) -> Iterator[bytes]:
        """Yields the file piece by piece, with the locks that live now; those that ended are removed. Some pieces are
        empty."""
        self.dirty, between = False, b'{"locks":[\n'
        lines, looked_count = list[bytes](), 0
        for group in list(self._groups):
            for lock in list(self._groups.get(group, {}).values()):
                looked_count += 1
                if _lives(lock, now):
                    lines.append(dialect.write_strict(SavedLock(group, lock.queue, lock.client_id, lock.host)))
                else:
                    self._drop(lock)
                if len(lines) == _LINES or looked_count == _LOOKED_AT:
                    yield between + b",\n".join(lines) if lines else b""
                    between, lines, looked_count = b",\n" if lines else between, [], 0
        if lines:
            yield between + b",\n".join(lines)
            between = b",\n"
        yield b"\n]}\n" if between == b",\n" else between + b"]}\n"

    def prune(self, now: float) -> Iterator[None]:
        """Remove the locks that ended by ``now``, in steps; other methods may be called between two steps."""
        remaining = _STEP_PRUNED
        while self._by_age and not _lives(lock := next(iter(self._by_age)), now):
            self._drop(lock)
            remaining -= 1
            if not remaining:
                yield
                remaining = _STEP_PRUNED

    def _drop(self, lock: _QueueLock) -> None:
        """Remove a lock that has ended, unless another one has its place by now."""
        locks = self._groups.get(lock.group, {})
        if locks.get(lock.queue) is lock:
            del locks[lock.queue]
            self._remove(lock)
            if not locks:
                del self._groups[lock.group]

    def in_order(self, group: str, now: float) -> bool:
        """Whether a client of the group has the lock of a queue."""
        locks = self._groups.get(group)
        return locks is not None and _lives(next(reversed(locks.values())), now)

    def _put(self, locks: dict[MessageQueue, _QueueLock], lock: _QueueLock) -> None:
        locks[lock.queue] = lock
        self._by_age[lock] = None
        self._places += lock.places
        self._hosts[lock.host] += lock.places

    def _remove(self, lock: _QueueLock) -> None:
        del self._by_age[lock]
        self._places -= lock.places
        self._hosts[lock.host] -= lock.places
        if not self._hosts[lock.host]:
            del self._hosts[lock.host]


def _places(lock: SavedLock) -> int:
    return 1 + len(dialect.write_strict(lock)) // PLACE_BYTES


def _lives(lock: _QueueLock, now: float) -> bool:
    return now - lock.asked_at <= LIVE_S
