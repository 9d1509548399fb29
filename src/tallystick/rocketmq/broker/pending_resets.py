"""Where operators set groups, until their consumers have heard of it: a core.

A connected consumer goes on where it was until it hears of a reset, and its next commit would undo the reset. So its
commits do not count after the reset, and the responses to its pulls have the new offset, until it commits or pulls
there: then it has heard (``ConsumerManageProcessor``, ``queryThenEraseResetOffset``; the original forgets a reset when
it told the first pull of any consumer, and when it is restarted). A pull proves less than a commit: a consumer that
reads ahead may have come there by itself, and one that heard may still hold messages from before. So the first pull
there gets the response, too, and after pulls alone no commit below the reset counts.

While a queue goes from one member to another both may read it, and one may have heard where the other has not. So each
is told by itself, to go on where those who heard have committed, until one of these goes on reading ``OVERLAP_S`` after
it heard.

Resets are kept with the counters of resets, and copied with them: ``resets.py``. The members that heard are not kept:
after a restart all are told again, and what they had not committed comes again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from tallystick.rocketmq.broker.offset_keys import split

PendingOffsets = dict[str, dict[int, int]]  # "topic@group" to queue id to the offset that was set

MOST = 100_000  # queues of groups; the oldest are forgotten, their offsets stay set
MOST_HEARD = 8  # members at a queue; the first are forgotten, and told again
OVERLAP_S = 60.0  # two may read a queue: a pull is held for 20 s, and members ask who they are every 20 s


@dataclass(slots=True)
class _Member:
    """A consumer that got the new offset in the response to a pull. ``since`` is when it had heard, or None if it has
    not. ``proven``: it committed since then, at ``offset`` or behind; before that no commit below ``offset`` counts."""

    offset: int
    since: float | None = None
    proven: bool = False


class PendingResetsCore:
    """The resets that consumers have not heard of. ``changed`` is called after each change of them. ``number_of``
    returns how many resets a queue of a key has had: a member has heard of one of that number."""

    def __init__(
        self, saved: PendingOffsets, changed: Callable[[], None], number_of: Callable[[str, int], int]
    ) -> None:
        """``saved`` belongs to this table from now on."""
        # Ordered, since the first goes in one step, however many went before it; a slave only looks places up.
        self._pending: PendingOffsets = OrderedDict(saved)
        self._count, self._changed, self._number_of = sum(map(len, saved.values())), changed, number_of
        # By key and queue id: the number of the reset, and its members by connection. The first are forgotten.
        self._members_by_queue: OrderedDict[tuple[str, int], tuple[int, dict[str, _Member]]] = OrderedDict()
        self._is_copy = False

    def __bool__(self) -> bool:
        return bool(self._pending)

    def put(self, key: str, offsets: Mapping[int, int]) -> None:
        """An operator set the group to these offsets, by queue id."""
        queues = self._pending.pop(key, {})
        self._count -= len(queues)
        for queue_id, offset in offsets.items():
            self._members_by_queue.pop((key, queue_id), None)
            queues.pop(queue_id, None)  # the newest is the last to be forgotten
            queues[queue_id] = offset
        self._count += len(queues)
        self._pending[key] = queues
        while self._count > MOST:
            oldest, queues = next(iter(self._pending.items()))
            for queue_id in list(islice(queues, self._count - MOST)):
                self._drop(oldest, queue_id)
        self._changed()

    def hear(self, key: str, queue_id: int, offset: int, who: str, now: float, *, commits: bool) -> int | None:
        """A consumer of the group, over the connection ``who``, ``commits`` an offset, or pulls there. Returns where it
        must go on instead, or None if it may go on."""
        reset_offset = self._pending.get(key, {}).get(queue_id)
        if reset_offset is None:
            return None
        member = self._members(key, queue_id).get(who)
        if member is None or member.since is None:
            has_heard = offset == reset_offset and (commits or member is not None)
            if has_heard or not commits:
                self._note(key, queue_id, who, _Member(reset_offset, now if has_heard else None, commits))
            return None if has_heard else reset_offset
        if commits and not member.proven and offset < min(member.offset, reset_offset):
            return reset_offset
        member.proven = member.proven or commits
        if now - member.since >= OVERLAP_S and not self._is_copy:
            self._drop(key, queue_id)
            self._changed()
        elif commits and offset != reset_offset:
            self._pending[key][queue_id] = offset
            self._changed()
        return None

    def _members(self, key: str, queue_id: int) -> dict[str, _Member]:
        number, members = self._members_by_queue.get((key, queue_id), (-1, {}))
        return members if members and number == self._number_of(key, queue_id) else {}

    def _note(self, key: str, queue_id: int, who: str, member: _Member) -> None:
        others = [(other, entry) for other, entry in self._members(key, queue_id).items() if other != who]
        members = dict(others[-MOST_HEARD + 1 :]) | {who: member}
        self._members_by_queue[key, queue_id] = self._number_of(key, queue_id), members
        if len(self._members_by_queue) > MOST:
            self._members_by_queue.popitem(last=False)

    def _drop(self, key: str, queue_id: int) -> None:
        self._members_by_queue.pop((key, queue_id), None)
        queues = self._pending[key]
        del queues[queue_id]
        self._count -= 1
        if not queues:
            del self._pending[key]

    def moved(self, key: str, queue_id: int, offset: int) -> None:
        """The group committed ``offset`` at a slave, where it had heard of the reset."""
        if self._pending.get(key, {}).get(queue_id, offset) != offset:
            self._pending[key][queue_id] = offset
            self._changed()

    def cut(self, end_of: Callable[[str, int], int]) -> None:
        """The log is recovered: move resets beyond the end of their queue (topic and queue id) back to it, as messages
        there will be new."""
        for key, queues in self._pending.items():
            topic, _ = split(key)
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if offset > end:
                    queues[queue_id] = end
                    self._changed()

    def replace(self, pending: PendingOffsets) -> None:
        """Replace the resets by the master's, which alone forgets them. Which members have heard is still known."""
        self._pending, self._count, self._is_copy = pending, 0, True

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the keys of a deleted topic or group: another one of its name begins anew."""
        for key in keys:
            if key in self._pending:
                self._count -= len(self._pending.pop(key))
                self._changed()

    def table(self) -> PendingOffsets:
        """Returns the offset of each pending reset, by key and queue id; it is no copy."""
        return self._pending
