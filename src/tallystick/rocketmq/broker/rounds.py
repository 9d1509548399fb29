"""When a slave copies its master's tables: the core of ``MetadataSync`` (H12).

Timed rounds come 3 s after the start and then every 10 s. An *early* round comes at once when the master is another one
than before; when the slave follows it again, for it does not know what was committed here meanwhile (H13); and when
records were dispatched of a topic that the slave's table lacks: a message that is acknowledged because the slave has it
must be readable there should the master die now (H3, H13).

Early rounds begin at least a second apart; what they do not bring is wanted again after 1, 2, 4, 8 s, and then left to
the timed ones: the log may hold messages of topics that were deleted long ago.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass

FIRST_S, PERIOD_S = 3.0, 10.0
GAP_S = 1.0
_EVERYTHING = ""  # beside the names of topics: a round in which no part fails


@dataclass(slots=True)
class _Want:
    """Something for which an early round is wanted. ``gap_s`` is the wait if the next round does not bring it."""

    due: float
    gap_s: float = GAP_S


class RoundsCore:
    """Events may come at any time; at ``wake_at`` a round ``began``, and it ``ended`` before the next one.

    ``master`` is None while none is known; then no round is due.
    """

    def __init__(self, now: float, *, first_s: float = FIRST_S, period_s: float = PERIOD_S) -> None:
        self.master: str | None = None
        self._period_s = period_s
        self._timed = now + first_s
        self._early_from = now
        self._wants: dict[str, _Want] = {}
        self._wants_at_begin: dict[str, _Want] = {}  # what was wanted when the round began
        self._is_timed = False  # the round that began last

    def master_found(self, master: str | None, now: float) -> None:
        """Name servers said where the master is. Another master may have what the one before lacked."""
        if master != self.master:
            self.master = master
            for name in (_EVERYTHING, *self._wants):
                self._wants[name] = _Want(now)

    def followed(self, now: float) -> None:
        """The slave follows its master from now on: one of the two was away."""
        self._wants[_EVERYTHING] = _Want(now)

    def dispatched(self, topics: Iterable[str], topic_names: Container[str], now: float) -> bool:
        """Records of these topics were dispatched. Returns whether ``wake_at`` changes. ``topic_names`` are those of
        the table."""
        new = [topic for topic in topics if topic not in topic_names and topic not in self._wants]
        for topic in new:
            self._wants[topic] = _Want(now)
        return bool(new)

    def wake_at(self) -> float | None:
        """Returns when the next round is due, or None if there is no master."""
        if self.master is None:
            return None
        early = min((want.due for want in self._wants.values()), default=math.inf)
        return min(self._timed, max(early, self._early_from))

    def began(self, now: float) -> None:
        self._wants_at_begin, self._is_timed = dict(self._wants), now >= self._timed
        if not self._is_timed:
            self._early_from = now + GAP_S

    def ended(self, topic_names: Container[str], now: float, *, failed: bool) -> None:
        """A round ended, and the table has ``topic_names`` now. ``failed``: at least one part was not copied."""
        if self._is_timed:
            self._timed = now + self._period_s
        if not failed and self._is_still(_EVERYTHING):
            del self._wants[_EVERYTHING]
        for topic in [topic for topic in self._wants if topic in topic_names]:
            del self._wants[topic]
        for name in self._wants_at_begin:
            if self._is_still(name):
                self._put_off(self._wants[name], now)

    def _is_still(self, name: str) -> bool:
        """Whether it is wanted, and only since before the round: what was wanted during it, another master's table for
        example, may have come too late for it."""
        return name in self._wants_at_begin and self._wants.get(name) is self._wants_at_begin[name]

    def _put_off(self, want: _Want, now: float) -> None:
        want.due = now + want.gap_s if want.gap_s < self._period_s else math.inf
        want.gap_s *= 2
