"""The promises of replication, checked at each response, each copy and at the end of a life.

What a send was told decides what must be true: with the master's disk, it survives anything that happens to the master;
with the slaves, enough distinct ones had it when the sender was told, and for good if they acknowledge what they
synced. And a slave that follows has the master's bytes, all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol

from tallystick.codec.checksum import crc32c
from tallystick.rocketmq.ha.acks import Ticket
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.sim.ha_log import FILE_BYTES, SimLog
from tallystick.sim.ha_plan import HaPlan
from tallystick.sim.invariants import Violation
from tallystick.sim.virtual.trace import Trace


@dataclass(frozen=True)
class WaitingSender:
    """A sender that waits since then, in seconds, for the log up to ``end``."""

    end: int
    since: float


class HaView(Protocol):
    """A master or a slave as a judge sees it."""

    id: str
    sync_flush: bool
    log: SimLog

    @property
    def senders(self) -> Mapping[Ticket, WaitingSender]: ...

    @property
    def answers(self) -> bool: ...

    @property
    def follows(self) -> bool: ...

    @property
    def why(self) -> str: ...


@dataclass(frozen=True)
class _Promise:
    """A promise that the bytes of a log up to ``end`` stay."""

    where: str
    end: int
    crc: int


class HaJudge:
    """Checks the promises against the nodes' logs. ``violation`` is the first that it found."""

    master: HaView

    def __init__(self, trace: Trace, plan: HaPlan, now: Callable[[], float]) -> None:
        """``now`` is the time in seconds."""
        self._trace, self._plan, self._now = trace, plan, now
        self.slaves: Sequence[HaView] = ()
        self.promise_count = 0
        self.alarm: tuple[int, Callable[[], None]] | None = None  # settable: what to do after which promise
        self.violation: str | None = None
        self._promises: list[_Promise] = []
        self._reach: dict[str, int] = {}  # how far a slave ever had the bytes that the master has now
        self._emptied: set[str] = set()  # slaves that lost their disks and do not follow yet

    def settled(self, wait: WaitingSender, status: PutStatus) -> None:
        """A sender was told what became of its send."""
        plan, master, end = self._plan, self.master, wait.end
        self._trace.note("told", end, status.name)
        late = self._now() >= wait.since + plan.settings.sync_flush_timeout_ms / 1000
        if plan.sync_flush and master.log.flushed < end and not late:
            self.fail("flush", f"{status.name} was told before the disk had the send up to {end}")
        if status is not PutStatus.PUT_OK:
            if status in (PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.FLUSH_SLAVE_TIMEOUT) and not plan.sync_replicas:
                self.fail("H9", f"{status.name} for a send that wanted no slave")
            return
        self.promise_count += 1
        if self.alarm is not None and self.promise_count > self.alarm[0]:
            (_, ring), self.alarm = self.alarm, None
            ring()
        if plan.sync_flush:
            if master.log.flushed < end:
                self.fail("flush", f"the send up to {end} is not on the master's disk")
            self._promises.append(_Promise(master.id, end, crc32c(bytes(master.log.data[:end]))))
        if plan.sync_replicas:
            self._replicated(end)

    def _replicated(self, end: int) -> None:
        holders = [slave for slave in self.slaves if self._has(slave, end)]
        if len(holders) < self._plan.settings.slaves_needed:
            self.fail("H9", f"the send up to {end} is on {len(holders)} slaves")
        for slave in holders:
            if slave.sync_flush and slave.id not in self._emptied:
                self._promises.append(_Promise(slave.id, end, crc32c(bytes(slave.log.data[:end]))))

    def _has(self, slave: HaView, end: int) -> bool:
        if slave.id in self._emptied:  # its acks are those of the lost disk
            return self._reach.get(slave.id, 0) >= end
        if not slave.log.empty and slave.log.first >= end:  # an empty one began behind it
            return False
        if not slave.sync_flush:
            return self._reach.get(slave.id, 0) >= end
        return slave.log.flushed >= end and self.same(slave, end)

    def copied(self, slave: HaView, offset: int, size: int) -> None:
        """A slave appended something."""
        end = offset + size
        if slave.log.data[offset:end] != self.master.log.data[offset:end]:
            self.fail("H8", f"{slave.id} copied bytes to {offset} that the master does not have there")
        self._reach[slave.id] = max(self._reach.get(slave.id, 0), end)

    def follows(self, slave: HaView) -> None:
        """A slave begins to copy."""
        if not self.same(slave, slave.log.end):
            self.fail("R3", f"{slave.id} follows a master whose log is another")
        if slave.id in self._emptied:
            self._emptied.remove(slave.id)
            self._reach[slave.id] = 0
        self._reach[slave.id] = max(self._reach.get(slave.id, 0), slave.log.end)

    def master_died(self) -> None:
        """The master has died: what it lost is no longer compared with its slaves."""
        for name in self._reach:
            self._reach[name] = min(self._reach[name], self.master.log.end)
        self._check_promises()

    def loses_disk(self, slave: HaView) -> None:
        """A slave is about to lose its disk, and with it what it promised. What it acknowledged it had."""
        if slave.id not in self._emptied and slave.sync_flush:
            flushed = slave.log.flushed
            self._reach[slave.id] = flushed if self.same(slave, flushed) else 0
        self._emptied.add(slave.id)
        self._promises = [promise for promise in self._promises if promise.where != slave.id]

    def same(self, slave: HaView, end: int) -> bool:
        """Returns whether the slave has the bytes that the master has up to there, or had before they were deleted."""
        if slave.log.empty:
            return True
        first = slave.log.first
        mine, theirs = self.master.log.data[first:end], slave.log.data[first:end]
        return end <= self.master.log.end and end <= slave.log.end and mine == theirs

    def unsettled(self) -> tuple[str, str] | None:
        """Returns what is not done yet, and which promise that is. Returns None when all is done.

        Who can follow follows and has everything (``copied`` saw to those who cannot). An empty one begins with the
        newest file, in which there may be nothing.
        """
        if not self.master.answers:
            return "H6", "the master does not run"
        if self.master.senders:
            return "H9", f"nobody was told about {list(self.master.senders.values())}"
        for slave in self.slaves:
            begins_at_end = slave.log.empty and not self.master.log.end % FILE_BYTES
            has_all = slave.log.end == self.master.log.end or begins_at_end
            if self.compatible(slave) and not (slave.follows and has_all):
                return "H6", f"{slave.id} has {slave.log.end} of {self.master.log.end}: {slave.why}"
        return None

    def at_the_end(self) -> None:
        """Check what holds at the end, when all is done."""
        self._check_promises()

    def compatible(self, slave: HaView) -> bool:
        """Returns whether the master can go on where the slave's log ends."""
        end = slave.log.end
        return slave.log.empty or (self.master.log.first < end and self.same(slave, end))

    def _check_promises(self) -> None:
        logs = {slave.id: slave.log for slave in self.slaves} | {self.master.id: self.master.log}
        for promise in self._promises:
            log = logs[promise.where]
            if log.end < promise.end or crc32c(bytes(log.data[: promise.end])) != promise.crc:
                self.fail("acked", f"{promise.where} lost what it had up to {promise.end}")

    def fail(self, promise: str, what: str) -> NoReturn:
        """Note a violation and raise it: the life has failed, also where the error is caught."""
        violation = Violation(f"{promise}: {what}")
        self.report(violation)
        raise violation

    def report(self, violation: Violation) -> None:
        """Note a violation that another judge found."""
        self._trace.note("VIOLATION", violation)
        self.violation = self.violation or str(violation)
