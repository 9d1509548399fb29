"""Which topics were deleted, and where in the log: records from before that get no units any more.

A deletion is forgotten when the log begins behind it. Of more than ``MOST`` the oldest go: by then all records before
them are dispatched, durably, so that nothing brings the topic back but a queue state that is lost, or a slave that was
away for as many deletions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile
from operator import itemgetter

MOST = 65_536


class DeletedTopics:
    """``offsets``: by topic the physical offset of its last deletion, rising. Copy it as a whole on other threads.

    ``forgotten``: deletions up to this physical offset may be missing. ``removals``: so many entries went, or moved to
    the end.
    """

    def __init__(self, offsets: Mapping[str, int], forgotten: int = 0) -> None:
        self.offsets, self.forgotten = _sorted(offsets), forgotten
        self.last = max(self.offsets.values(), default=0)
        self.removals = 0

    def get(self, topic: str) -> int:
        """The physical offset of its deletion; 0 if there was none."""
        return self.offsets.get(topic, 0)

    def add(self, deleted: Mapping[str, int]) -> None:
        self.removals += len(deleted.keys() & self.offsets.keys())
        if deleted.keys() & self.offsets.keys() or any(offset < self.last for offset in deleted.values()):
            # In one step: another thread, which notes it, must not miss what was there.
            self.offsets = _sorted(self.offsets | dict(deleted))
        else:
            self.offsets.update(_sorted(deleted))
        self.last = max((self.last, *deleted.values()))

    def forget_before(self, first: int) -> None:
        """The log begins at ``first``."""
        self._drop(first, len(self.offsets))

    def bound(self, dispatched: int) -> None:
        """Make room; deletions behind the physical offset ``dispatched`` stay."""
        if len(self.offsets) >= MOST:
            self.forgotten = self._drop(dispatched, len(self.offsets) - MOST + MOST // 16 + 1) or self.forgotten

    def is_full(self, dispatched: int) -> bool:
        """Whether ``bound`` would make no room."""
        return len(self.offsets) >= MOST and next(iter(self.offsets.values())) > dispatched

    def _drop(self, up_to: int, most: int) -> int:
        """Returns the last offset that is dropped; 0 if none is."""
        gone = list(takewhile(lambda offset: offset <= up_to, islice(self.offsets.values(), most)))
        if gone:
            self.offsets = dict(islice(self.offsets.items(), len(gone), None))
            self.removals += len(gone)
        return gone[-1] if gone else 0


def _sorted(offsets: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(offsets.items(), key=itemgetter(1)))
