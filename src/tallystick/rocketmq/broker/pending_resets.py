"""Where operators set groups, until their consumers have heard of it: a core.

A consumer that is there goes on where it was until it is told, and its next commit would undo the reset. So its commits
count no more from the reset on, and its pulls are answered with the new offset, until one of either comes from there:
it has heard (``ConsumerManageProcessor``, ``queryThenEraseResetOffset``; the original forgets a reset when it told the
first pull of whomever, and when it is restarted).

While a queue goes from one member to another both may read it, and what one has heard the other has not. So each is
told by itself, to go on where those who have heard committed, until one of these reads on ``OVERLAP_S`` after it heard.

They are kept with the counters of resets, and copied with them: ``resets.py``. Who has heard is not: after a restart
all are told again, and what they had not committed comes again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice

from tallystick.rocketmq.broker.offset_keys import split

Waiting = dict[str, dict[int, int]]  # "topic@group" to queue id to the offset

MOST = 100_000  # queues of groups; the oldest are forgotten, their offsets stay set
MOST_HEARD = 8  # members at a queue; the first are forgotten, and told again
OVERLAP_S = 60.0  # two may read a queue: a pull is held for 20 s, and members ask who they are every 20 s


class PendingResets:
    """See the module. ``changed`` is called when others wait, fewer, or for another offset."""

    def __init__(self, saved: Waiting, changed: Callable[[], None], *, is_copy: bool = False) -> None:
        """What ``saved`` has is its own from now on. ``is_copy``: of the master's, who alone forgets them."""
        # Ordered, since the first goes in one step, however many went before it; a slave only looks places up.
        self._waiting: Waiting = saved if is_copy else OrderedDict(saved)
        self._count, self._changed = sum(map(len, self._waiting.values())), changed
        self._heard: dict[str, dict[int, dict[str, float]]] = {}  # who has, since when; by key and queue id
        self._is_copy = is_copy

    def __len__(self) -> int:
        return self._count

    def put(self, key: str, offsets: Mapping[int, int]) -> None:
        """An operator set the group to these offsets, by queue id."""
        queues, heard = self._waiting.pop(key, {}), self._heard.get(key, {})
        self._count -= len(queues)
        for queue_id, offset in offsets.items():
            heard.pop(queue_id, None)
            queues.pop(queue_id, None)  # the newest is the last to be forgotten
            queues[queue_id] = offset
        self._count += len(queues)
        self._waiting[key] = queues
        while self._count > MOST:
            oldest, queues = next(iter(self._waiting.items()))
            for queue_id in list(islice(queues, self._count - MOST)):
                self._drop(oldest, queue_id)
        self._changed()

    def hear(self, key: str, queue_id: int, offset: int, who: str, now: float, *, commits: bool) -> int | None:
        """A consumer of the group, by the connection ``who``, ``commits`` an offset, or pulls there. Returns where it
        is to go on instead, or None."""
        wanted = self._waiting.get(key, {}).get(queue_id) if self._count else None
        if wanted is None:
            return None
        heard = self._heard.get(key, {}).get(queue_id, {})
        if who not in heard:
            if offset == wanted:
                latest = list(heard.items())[-MOST_HEARD + 1 :]
                self._heard.setdefault(key, {})[queue_id] = dict(latest) | {who: now}
                return None
            return wanted
        if now - heard[who] >= OVERLAP_S and not self._is_copy:
            self._drop(key, queue_id)
            self._changed()
        elif commits and offset != wanted:
            self._waiting[key][queue_id] = offset
            self._changed()
        return None

    def _drop(self, key: str, queue_id: int) -> None:
        self._heard.get(key, {}).pop(queue_id, None)
        queues = self._waiting[key]
        del queues[queue_id]
        self._count -= 1
        if not queues:
            del self._waiting[key]
            self._heard.pop(key, None)

    def moved(self, key: str, queue_id: int, offset: int) -> None:
        """The group committed this at a slave, where it had heard."""
        if self._waiting.get(key, {}).get(queue_id, offset) != offset:
            self._waiting[key][queue_id] = offset
            self._changed()

    def cut(self, end_of: Callable[[str, int], int]) -> None:
        """The log is recovered: nobody is sent on beyond the end of a queue (topic and queue id), for what comes there
        is new."""
        for key, queues in self._waiting.items():
            topic, _ = split(key)
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    queues[queue_id] = end
                    self._changed()

    def heard(self) -> Iterator[tuple[str, int]]:
        """Of which of them somebody has."""
        return ((key, queue_id) for key, queues in self._heard.items() for queue_id in queues)

    def replaced(self, table: Waiting, same: Set[tuple[str, int]]) -> PendingResets:
        """By the master's, who alone forgets them; who has heard of one has heard of the ``same``."""
        after = PendingResets(table, self._changed, is_copy=True)
        for key, queue_id in same:
            if queue_id in after._waiting.get(key, {}):
                after._heard.setdefault(key, {})[queue_id] = self._heard[key][queue_id]
        return after

    def forget(self, keys: Iterable[str]) -> None:
        """A topic or a group is deleted, and had these keys: what comes under its name begins anew."""
        for key in keys:
            if key in self._waiting:
                self._count -= len(self._waiting.pop(key))
                self._heard.pop(key, None)
                self._changed()

    def table(self) -> Waiting:
        """All, as they stand; not a copy."""
        return self._waiting
