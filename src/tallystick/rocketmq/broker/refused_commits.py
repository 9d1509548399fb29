"""The commits of a slave that its master refused, and when they are sent again (H13): a core.

A master has room for so many offsets (``maxOffsets``), or forbids reads for a while. The slave keeps what it refuses. A
new commit is sent at once. Of the refused ones ``PROBES`` are sent again in the next round, then after 30 s, 60 s and
so on up to ten minutes, first those that were not sent for longest. When the master takes all of these, all others are
sent.

A commit may be beyond the end of the slave's own queue: that was deleted, or begins anew. If the master refuses it too,
it is sent once more in the next round; refused again, and still beyond the end, it is never sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tallystick.rocketmq.broker.offsets import OffsetCommit

PROBES = 100  # of those that were refused, in one round
FIRST_S, MOST_S = 30.0, 600.0
STEP_PLACES = 1000  # looked at within a millisecond

_Place = tuple[str, int]  # key and queue id: a later commit to a queue has no better chance


class RefusedCommitsCore:
    """In a round call ``began``; for each commit that the master lacks ``is_due``, and ``taken`` or ``refused``;
    ``ended``."""

    def __init__(self) -> None:
        # In the order in which they were sent last; with each, in which round it was seen last.
        self._refused: dict[_Place, int] = {}
        self._round = 0
        self._due = self._gap_s = 0.0
        self._probes: frozenset[_Place] = frozenset()
        self._taken_probes = self._refused_probes = 0  # of the probes
        self._remark = ""  # why the master refused the last one
        # Of the refused ones: the offset that was beyond the end of the queue here when it was refused first.
        self._beyond: dict[_Place, int] = {}

    @property
    def why(self) -> str:
        """Why the master lacks commits that were made here; empty if it refused none."""
        count = len(self._refused)
        return f"the master does not take {count} offsets that were committed here: {self._remark}" if count else ""

    def began(self, now: float) -> None:
        self._round += 1
        self._probes = frozenset(islice(self._refused, PROBES)) if now >= self._due else frozenset()
        self._taken_probes = self._refused_probes = 0

    def is_due(self, commit: OffsetCommit) -> bool:
        """Whether a commit is to be sent to the master in this round."""
        place = _place(commit)
        if place not in self._refused:
            return True
        self._refused[place] = self._round
        return place in self._probes or place in self._beyond

    def refused(self, commit: OffsetCommit, remark: str, *, is_beyond: bool = False) -> bool:
        """The master refused a commit; ``is_beyond``: the queue at the slave ends before it, too.

        Returns whether the commit is given up: it was so at the look before.
        """
        place = _place(commit)
        if is_beyond and self._beyond.get(place) == commit.offset:
            self._forget(place)
            return True
        self._refused_probes += place in self._probes and not is_beyond
        self._forget(place)
        self._refused[place] = self._round
        if is_beyond:
            self._beyond[place] = commit.offset
        self._remark = remark
        return False

    def taken(self, commit: OffsetCommit) -> None:
        """The master took a commit, or will never take it."""
        place = _place(commit)
        self._taken_probes += place in self._probes
        self._forget(place)

    def _forget(self, place: _Place) -> None:
        self._refused.pop(place, None)
        self._beyond.pop(place, None)

    def ended(self, now: float) -> Iterator[None]:
        """The round has looked at all commits that the master lacks. In steps, as there may be a million."""
        is_over = self._taken_probes > 0 and not self._refused_probes
        for count, place in enumerate(list(self._refused), 1):
            if is_over or self._refused[place] != self._round:  # the master has it, or it went
                self._forget(place)
            if count % STEP_PLACES == 0:
                yield
        if self._taken_probes:
            self._due = self._gap_s = 0.0
        elif self._refused_probes:
            self._gap_s = min(max(FIRST_S, 2 * self._gap_s), MOST_S)
            self._due = now + self._gap_s


def _place(commit: OffsetCommit) -> _Place:
    return commit.key, commit.queue_id
