"""Who waits for the disk and for which slaves, and how it ends (H9, H10; ``GroupTransferService``,
``CommitLog.handleDiskFlushAndHA``).

A wait at both gates is over when both are: whatever the slaves do, nobody is told before the master's disk has the
message or its time is up. The slaves' status wins over the disk's, unless it is OK, and says if it does.

A wait is for all sends of one loop tick with the same wishes. Their ends ascend, so one comparison with the front of a
deque settles all that an ack reaches, in order, whatever comes behind them. An ack is a slave's report of at most what
was sent to it (R1); two links of one slave are one slave (R2). It is a position, and says nothing of what is before the
beginning of the slave's log: that of an empty slave is the master's newest file, perhaps behind sends that wait, for
which this slave's acks do not count (``GroupTransferService`` counts them).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.values import PutStatus

Ticket = int

# Which of two statuses a producer is told: the slaves' one, unless it is OK.
_WEIGHTS = {
    PutStatus.PUT_OK: 0,
    PutStatus.FLUSH_DISK_TIMEOUT: 1,
    PutStatus.FLUSH_SLAVE_TIMEOUT: 2,
    PutStatus.SLAVE_NOT_AVAILABLE: 2,
}


# There is one of each for each turn with sends, and a struct is made in a tenth of the time of a dataclass.
class Settle(msgspec.Struct, frozen=True):
    """A wait is over. ``disk_late``: the master's disk does not have the messages either, and the status is the
    slaves'."""

    ticket: Ticket
    status: PutStatus
    disk_late: bool = False


class Settled(msgspec.Struct, frozen=True):
    """What ``appended`` returns: the ticket of the wait, and the waits that are already over, this one perhaps
    included."""

    ticket: Ticket
    settles: tuple[Settle, ...]


@dataclass
class _Slave:
    """A connected slave. ``position`` is where its log ends, as far as the master knows; ``acked`` is what it
    acknowledged, -1 before its first ack; it has nothing before ``first``. ``late``: a wait for it timed out, and it
    has not caught up since."""

    position: int
    first: int
    acked: int = -1
    late: bool = False


class _Wait(NamedTuple):
    """A wait for the log up to ``end``; the first send that it is for ends at ``first_end``."""

    first_end: int
    end: int
    deadline: float
    ticket: Ticket


class _Gate:
    """Waits for one offset, the disk's or the slaves', to pass their ends. The deadlines ascend, and so do the ends,
    but for waits on what was appended earlier. ``reached`` tells how far the log has come for who waits from the
    ``first_end`` on that it is given."""

    def __init__(self, timeout_s: float, reached: Callable[[int], int]) -> None:
        self._timeout_s, self._reached = timeout_s, reached
        self._waits: deque[_Wait] = deque()

    def wait(self, first_end: int, end: int, now: float, ticket: Ticket) -> None:
        self._waits.append(_Wait(first_end, end, now + self._timeout_s, ticket))

    def passed(self) -> list[Ticket]:
        """Remove the first waits whose ends are reached. Returns their tickets."""
        tickets = []
        while self._waits and self._waits[0].end <= self._reached(self._waits[0].first_end):
            tickets.append(self._waits.popleft().ticket)
        return tickets

    def expired(self, now: float) -> list[_Wait]:
        """Remove the first waits whose deadlines have passed, up to one whose end is reached. Returns them; the caller
        removes those behind them that have ``passed``."""
        waits = []
        while self._waits and self._waits[0].deadline <= now:
            if self._waits[0].end <= self._reached(self._waits[0].first_end):
                break
            waits.append(self._waits.popleft())
        return waits

    def leave(self) -> list[Ticket]:
        """Remove all waits. Returns their tickets."""
        tickets = [wait.ticket for wait in self._waits]
        self._waits.clear()
        return tickets

    @property
    def deadline(self) -> float | None:
        return self._waits[0].deadline if self._waits else None


class AcksCore:
    """Each event returns the waits that it ended. ``tick`` is due at ``wake_at``. All offsets are physical ends."""

    def __init__(self, settings: HaSettings, *, flushed: int = 0) -> None:
        self._settings = settings
        self._flushed = flushed
        self._disk = _Gate(settings.sync_flush_timeout_ms / 1000, lambda first_end: self._flushed)
        self._replicas = _Gate(settings.slave_timeout_ms / 1000, self.replicated)
        self._slaves: dict[str, _Slave] = {}
        self._double_waits: dict[Ticket, PutStatus | None] = {}  # waits for both; the status of the one that is done
        self._last_ticket: Ticket = 0
        self._last_end = 0  # of what was appended

    def appended(self, end: int, now: float, *, flush: bool, replicas: bool, first_end: int | None = None) -> Settled:
        """Sends up to ``end`` were appended, the first of them up to ``first_end`` (None: it is the only one):
        ``flush`` and ``replicas`` tell whether their responses wait for the master's disk and for slaves. Call it at
        most once a tick for each combination. A wait for an ``end`` that was appended earlier is over no sooner than
        the waits before it."""
        first_end = end if first_end is None else first_end
        self._last_ticket = ticket = self._last_ticket + 1
        self._last_end = max(self._last_end, end)
        slaves = replicas and end > self.replicated(first_end)
        # "At once" (H10): no slave is waited for, the disk is. One whose log begins behind it will never have it.
        lacks_slaves = slaves and not self.available(end, first_end)
        slaves = slaves and not lacks_slaves
        disk = flush and end > self._flushed
        if disk:
            self._disk.wait(first_end, end, now, ticket)
        if slaves:
            self._replicas.wait(first_end, end, now, ticket)
        if disk and (slaves or lacks_slaves):
            self._double_waits[ticket] = PutStatus.SLAVE_NOT_AVAILABLE if lacks_slaves else None
        if disk or slaves:
            return Settled(ticket, ())
        return Settled(ticket, (Settle(ticket, PutStatus.SLAVE_NOT_AVAILABLE if lacks_slaves else PutStatus.PUT_OK),))

    def flushed(self, offset: int, now: float) -> list[Settle]:
        """The master's disk has everything up to ``offset``."""
        self._flushed = max(self._flushed, offset)
        return [*self._end(self._disk.passed(), PutStatus.PUT_OK), *self.tick(now)]

    def connected(self, slave: str, position: int, now: float, *, first: int = 0) -> list[Settle]:
        """A slave reported where its log ends. That is its position and no ack (R1); it has nothing before ``first``. A
        slave that connects again starts anew."""
        self._slaves[slave] = _Slave(position, first)
        return self.tick(now)

    def reported(self, slave: str, offset: int, now: float) -> list[Settle]:
        """A connected slave acknowledged all bytes up to ``offset`` that it was sent."""
        state = self._slaves[slave]
        state.acked = max(state.acked, offset)
        state.position = max(state.position, offset)
        state.late = state.late and state.acked < self._last_end
        return [*self._end(self._replicas.passed(), PutStatus.PUT_OK), *self.tick(now)]

    def disconnected(self, slave: str, now: float) -> list[Settle]:
        """A slave's link ended: its acks count no more. Waits go on, as it may connect again in time."""
        self._slaves.pop(slave, None)
        return self.tick(now)

    def give_up(self) -> list[Settle]:
        """The broker is a master no more and gets no acks: all waits end as if they had timed out. So no producer hears
        of a copy that may not exist, nor that nothing was stored."""
        return [
            *self._end(self._replicas.leave(), PutStatus.FLUSH_SLAVE_TIMEOUT),
            *self._end(self._disk.leave(), PutStatus.FLUSH_DISK_TIMEOUT),
        ]

    def tick(self, now: float) -> list[Settle]:
        """End the waits whose time is up, and those behind them that wait for nothing else."""
        settles: list[Settle] = []
        while expired := self._replicas.expired(now):
            if self._settings.out_of_sync_when_late:
                self._mark_late(max(wait.first_end for wait in expired))
            settles += self._end([wait.ticket for wait in expired], PutStatus.FLUSH_SLAVE_TIMEOUT)
            settles += self._end(self._replicas.passed(), PutStatus.PUT_OK)
        while expired := self._disk.expired(now):
            settles += self._end([wait.ticket for wait in expired], PutStatus.FLUSH_DISK_TIMEOUT)
            settles += self._end(self._disk.passed(), PutStatus.PUT_OK)
        return settles

    def _mark_late(self, first_end: int) -> None:
        """A wait for what ends at ``first_end`` timed out: its slaves are late, not those that begin behind it."""
        for slave in self._slaves.values():
            slave.late = slave.late or (slave.first < first_end and slave.acked < self._last_end)

    def wake_at(self) -> float | None:
        """Returns when ``tick`` is due, or None if nothing waits."""
        return min((gate.deadline for gate in (self._disk, self._replicas) if gate.deadline is not None), default=None)

    def replicated(self, first_end: int) -> int:
        """Returns the physical offset up to which enough distinct slaves acknowledged the log, of those that have what
        ends at ``first_end``; -1 if they did not."""
        quorum = self._settings.slaves_needed
        acked = sorted((slave.acked for slave in self._slaves.values() if slave.first < first_end), reverse=True)
        return acked[quorum - 1] if len(acked) >= quorum else -1

    def in_sync(self, end: int) -> int:
        """Returns how many slaves are in sync: less than ``max_gap_bytes`` behind ``end``, and not late."""
        return sum(self._is_in_sync(slave, end) for slave in self._slaves.values())

    def _is_in_sync(self, slave: _Slave, end: int) -> bool:
        return end - slave.position < self._settings.max_gap_bytes and not slave.late

    def is_late(self, slave: str) -> bool:
        """Whether a connected slave is out of sync because a wait for it timed out."""
        return slave in self._slaves and self._slaves[slave].late

    def available(self, end: int, first_end: int | None = None) -> bool:
        """Whether enough slaves are in sync to wait for them (H10), of those that will have what ends at ``first_end``
        (None: at ``end``)."""
        needed_end = end if first_end is None else first_end
        slaves = [slave for slave in self._slaves.values() if slave.first < needed_end]
        return sum(self._is_in_sync(slave, end) for slave in slaves) >= self._settings.slaves_needed

    def _end(self, tickets: list[Ticket], status: PutStatus) -> list[Settle]:
        """Waits passed one gate. Returns those that are over: a wait at both gates is over with the second one."""
        settles = []
        for ticket in tickets:
            if ticket not in self._double_waits:
                settles.append(Settle(ticket, status))
            elif (other := self._double_waits[ticket]) is None:
                self._double_waits[ticket] = status
            else:
                del self._double_waits[ticket]
                final_status = max(status, other, key=_WEIGHTS.__getitem__)
                disk_late = (
                    PutStatus.FLUSH_DISK_TIMEOUT in (status, other) and final_status is not PutStatus.FLUSH_DISK_TIMEOUT
                )
                settles.append(Settle(ticket, final_status, disk_late))
        return settles
