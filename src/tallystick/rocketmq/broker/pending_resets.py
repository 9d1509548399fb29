"""Where operators set groups, until their consumers have heard of it: a core.

A consumer that is there goes on where it was until it is told, and its next commit would undo the reset. So its commits
count no more from the reset on, and its pulls are answered with the new offset, until one of either comes from there
(``ConsumerManageProcessor``, ``queryThenEraseResetOffset``; the original forgets it when it told the first pull of
whomever, and when it is restarted). They are kept with the counters of resets, and copied with them: ``resets.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tallystick.rocketmq.broker.offset_keys import split

Waiting = dict[str, dict[int, int]]  # "topic@group" to queue id to the offset

MOST = 100_000  # queues of groups; the oldest are forgotten, their offsets stay set


class PendingResets:
    """See the module. ``changed`` is called when others wait, or fewer."""

    def __init__(self, saved: Mapping[str, Mapping[int, int]], changed: Callable[[], None]) -> None:
        self._waiting: Waiting = {key: dict(queues) for key, queues in saved.items()}
        self._count, self._changed = sum(map(len, self._waiting.values())), changed

    def __len__(self) -> int:
        return self._count

    def put(self, key: str, queue_id: int, offset: int) -> None:
        """An operator set the group to ``offset``."""
        queues = self._waiting.pop(key, {})  # the newest is the last to be forgotten
        self._count += queue_id not in queues
        queues.pop(queue_id, None)
        queues[queue_id] = offset
        self._waiting[key] = queues
        while self._count > MOST:
            oldest = next(iter(self._waiting))
            self._drop(oldest, next(iter(self._waiting[oldest])))
        self._changed()

    def hear(self, key: str, queue_id: int, offset: int) -> int | None:
        """A consumer of the group commits, or pulls at, ``offset``. Returns where it is to go on instead, or None."""
        wanted = self._waiting.get(key, {}).get(queue_id) if self._count else None
        if wanted is None or wanted != offset:
            return wanted
        self._drop(key, queue_id)
        self._changed()
        return None

    def _drop(self, key: str, queue_id: int) -> None:
        queues = self._waiting[key]
        del queues[queue_id]
        self._count -= 1
        if not queues:
            del self._waiting[key]

    def forget_topic(self, topic: str) -> None:
        """It is deleted: what comes under its name begins anew."""
        self._forget(key for key in self._waiting if split(key)[0] == topic)

    def forget_group(self, group: str) -> None:
        """As ``forget_topic``."""
        self._forget(key for key in self._waiting if split(key)[1] == group)

    def _forget(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._count -= len(self._waiting.pop(key))
            self._changed()

    def table(self) -> Waiting:
        """All, as they stand; not a copy."""
        return self._waiting
