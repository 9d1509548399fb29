"""Where operators set groups, until their consumers have heard of it: a core.

A consumer that is there goes on where it was until it is told, and its next commit would undo the reset. So its commits
count no more from the reset on, and its pulls are answered with the new offset, until one of either comes from there
(``ConsumerManageProcessor``, ``queryThenEraseResetOffset``; the original forgets it when it told the first pull of
whomever).
"""

from __future__ import annotations

Place = tuple[str, str, int]  # topic, group, queue id

MOST = 100_000  # queues of groups; the oldest are forgotten, their offsets stay set


class PendingResets:
    """See the module."""

    def __init__(self) -> None:
        self._offsets: dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, place: Place, offset: int) -> None:
        """An operator set the group to ``offset``."""
        self._offsets.pop(place, None)  # the newest is the last to be forgotten
        self._offsets[place] = offset
        while len(self._offsets) > MOST:
            del self._offsets[next(iter(self._offsets))]

    def hear(self, place: Place, offset: int) -> int | None:
        """A consumer of the group commits, or pulls at, ``offset``. Returns where it is to go on instead, or None."""
        wanted = self._offsets.get(place)
        if wanted == offset:
            del self._offsets[place]
            return None
        return wanted

    def forget_topic(self, topic: str) -> None:
        """It is deleted: what comes under its name begins anew."""
        self._offsets = {place: offset for place, offset in self._offsets.items() if place[0] != topic}

    def forget_group(self, group: str) -> None:
        """As ``forget_topic``."""
        self._offsets = {place: offset for place, offset in self._offsets.items() if place[1] != group}
