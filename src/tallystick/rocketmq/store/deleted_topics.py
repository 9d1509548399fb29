"""The topics that were deleted, with the place of the deletion in the log: earlier records get no units any more.

A deletion is forgotten when the log begins behind it. Of more than ``MOST`` the oldest are forgotten: by then all
records before them are dispatched, durably, so nothing brings the topic back but a lost queue state, or a slave that
was away for as many deletions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile
from operator import itemgetter

MOST = 65_536


class DeletedTopics:
    """``offsets`` has, by topic, the physical offset of its last deletion, rising; other threads copy it as a whole.
    Deletions up to the physical offset ``forgotten_up_to`` may be missing. ``removals`` counts the entries that went or
    moved to the end. ``told_by`` is the process of the master that told a slave of those behind the end of its log, and
    ``cuts`` counts how often such ones turned out to be of another log."""

    def __init__(self, offsets: Mapping[str, int], forgotten_up_to: int = 0, told_by: str = "") -> None:
        self.offsets, self.forgotten_up_to, self.told_by = _by_offset(offsets), forgotten_up_to, told_by
        self.cuts = 0
        self.last = max(self.offsets.values(), default=0)
        self.removals = 0

    def get(self, topic: str) -> int:
        """Returns the physical offset of a topic's deletion; 0 if there was none."""
        return self.offsets.get(topic, 0)

    def add(self, deletions: Mapping[str, int]) -> None:
        self.removals += len(deletions.keys() & self.offsets.keys())
        if deletions.keys() & self.offsets.keys() or any(offset < self.last for offset in deletions.values()):
            # In one step: another thread, which notes it, must not miss what was there.
            self.offsets = _by_offset(self.offsets | dict(deletions))
        else:
            self.offsets.update(_by_offset(deletions))
        self.last = max((self.last, *deletions.values()))

    def cut(self, end: int) -> None:
        """The log ends at ``end`` now: a deletion behind it moves there, so that it takes no later record."""
        self.offsets = {topic: min(offset, end) for topic, offset in self.offsets.items()}  # in the same order
        self.last, self.forgotten_up_to = min(self.last, end), min(self.forgotten_up_to, end)

    def follow(self, master: str, end: int) -> int:
        """A slave's log, whose records end at ``end``, is copied from this process of a master from now on; empty if
        that is not known. Returns how many deletions were cut.

        What another process told of behind ``end`` is cut: its log may never come, and what comes instead was not
        deleted. What this one told of stays, for a process never loses what its log had.
        """
        if master and master == self.told_by and end:
            return 0
        self.told_by = master
        cut_count = sum(offset > end for offset in self.offsets.values()) if self.last > end else 0
        if cut_count:
            self.cut(end)
            self.cuts += 1
        return cut_count

    def forget_before(self, first: int) -> None:
        """Forget the deletions before ``first``, where the log begins now."""
        self._drop(first, len(self.offsets))

    def make_room(self, dispatched: int) -> None:
        """Forget the oldest deletions, but none behind the physical offset ``dispatched``."""
        if len(self.offsets) >= MOST:
            self.forgotten_up_to = (
                self._drop(dispatched, len(self.offsets) - MOST + MOST // 16 + 1) or self.forgotten_up_to
            )

    def is_full(self, dispatched: int) -> bool:
        """Whether ``make_room`` would make no room."""
        return len(self.offsets) >= MOST and next(iter(self.offsets.values())) > dispatched

    def _drop(self, up_to: int, most: int) -> int:
        """Drop entries. Returns the last offset among them; 0 if there is none."""
        dropped_offsets = list(takewhile(lambda offset: offset <= up_to, islice(self.offsets.values(), most)))
        if dropped_offsets:
            self.offsets = dict(islice(self.offsets.items(), len(dropped_offsets), None))
            self.removals += len(dropped_offsets)
        return dropped_offsets[-1] if dropped_offsets else 0


def _by_offset(offsets: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(offsets.items(), key=itemgetter(1)))
