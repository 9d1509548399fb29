"""The state of replication, as values: for ``tally ha status``, the metrics and GET_BROKER_HA_STATUS (907)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from tallystick.rocketmq.wire.ha import MasterHello

_MARK_EVERY_S = 0.05
_MARKS = 4096
_COARSE = 0.01


@dataclass(frozen=True)
class SlaveStatus:
    """A slave as its master sees it. ``started`` is False for a connection that has not yet reported where its log
    ends."""

    address: str
    slave_id: str | None  # None: an original slave, which has none
    started: bool
    proven: bool  # the logs were compared
    start: int  # where the transfer began
    sent_offset: int
    acked: int  # -1: nothing yet
    behind_bytes: int
    behind_s: float
    bytes_per_s: int
    in_sync: bool
    why: str  # in words, for an operator


@dataclass(frozen=True)
class FollowStatus:
    """The state of a slave, as it sees it itself."""

    master: str | None  # host:port of the HA port
    state: str
    proven: bool
    end: int
    flushed: int
    reported_offset: int  # -1: nothing yet
    bytes_per_s: int
    last_read_ms: int  # wall clock; 0: never
    last_write_ms: int
    master_hello: MasterHello | None  # at the start of this link
    why: str  # why it does not follow; empty when it does
    link: int = 0  # which of its links feeds it now, counted from 1; 0: none does


class Speed:
    """Counts the bytes of the last full second (``FlowMonitor``)."""

    def __init__(self) -> None:
        self._second, self._current, self._last = 0, 0, 0

    def count(self, size: int, now: float) -> None:
        self._roll(now)
        self._current += size

    def per_second(self, now: float) -> int:
        self._roll(now)
        return self._last

    def _roll(self, now: float) -> None:
        elapsed_s = int(now) - self._second
        if elapsed_s:
            self._last = self._current if elapsed_s == 1 else 0
            self._second, self._current = int(now), 0


class Ages:
    """Remembers, from time to time, when the log reached which end: so a slave's lag has an age in seconds."""

    def __init__(self, end: int, now: float) -> None:
        self._ends, self._times = [end], [now]

    def appended(self, end: int, now: float) -> None:
        if now < self._times[-1] + _MARK_EVERY_S:
            return
        self._ends.append(end)
        self._times.append(now)
        if len(self._ends) > _MARKS:
            self._thin(now)

    def behind_s(self, position: int, end: int, now: float) -> float:
        """Returns the seconds since the log grew beyond ``position``; if that was before this process, the seconds
        since its start."""
        if position >= end:
            return 0.0
        mark = min(bisect_right(self._ends, position), len(self._times) - 1)
        return max(0.0, now - self._times[mark])

    def _thin(self, now: float) -> None:
        """Drop marks, the more the older they are: an age is right to some hundredths, and days take no more memory
        than hours."""
        ends, times = [self._ends[0]], [self._times[0]]
        for end, time in zip(self._ends, self._times, strict=True):
            if time - times[-1] >= (now - time) * _COARSE and end > ends[-1]:
                ends.append(end)
                times.append(time)
        self._ends, self._times = ends, times
