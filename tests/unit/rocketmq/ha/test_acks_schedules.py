"""Waits for slaves that begin behind a send, and for sends that are repeated, in any order of events: nobody is told
what was never true, nobody waits beyond his time, and the clock wakes nobody for nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.rocketmq.ha.acks import AcksCore, Settle
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.values import PutStatus

SETTINGS = HaSettings(slave_timeout_ms=3000, sync_flush_timeout_ms=5000)


@dataclass
class Slave:
    first: int
    acked: int = -1


@dataclass
class Wait:
    first_end: int
    end: int
    since: float
    flush: bool
    replicas: bool
    was_replicated: bool = False

    @property
    def ends_at(self) -> float:
        return self.since + (5.0 if self.flush else 3.0)


class Schedule:
    """A random order of events, in which each answer is judged."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.needs = rng.choice((1, 1, 2))
        late, gap = rng.random() < 0.3, rng.choice((20, 1 << 28))
        settings = replace(SETTINGS, in_sync_replicas=self.needs + 1, out_of_sync_when_late=late, max_gap_bytes=gap)
        self.acks = AcksCore(settings)
        self.now, self.end, self.disk = 0.0, 0, 0
        self.slaves: dict[str, Slave] = {}
        self.sends: list[tuple[int, int]] = []
        self.waits: dict[int, Wait] = {}

    def look(self) -> None:
        """See which waits have their slaves now."""
        for wait in self.waits.values():
            copies = sum(slave.first < wait.first_end and slave.acked >= wait.end for slave in self.slaves.values())
            wait.was_replicated = wait.was_replicated or copies >= self.needs

    def settled(self, settles: list[Settle]) -> None:
        for settle in settles:
            wait = self.waits.pop(settle.ticket)
            match settle.status:
                case PutStatus.PUT_OK:
                    assert self.disk >= wait.end or not wait.flush
                    assert wait.was_replicated or not wait.replicas
                case PutStatus.FLUSH_DISK_TIMEOUT:
                    assert wait.flush and self.now >= wait.since + 5.0
                case PutStatus.FLUSH_SLAVE_TIMEOUT:
                    assert wait.replicas and self.now >= wait.since + 3.0
                case _:
                    assert wait.replicas

    def send(self) -> None:
        self.settled(self.acks.tick(self.now))
        if self.sends and self.random.random() < 0.4:
            first_end, end = self.random.choice(self.sends)
        else:
            first_end = self.end + self.random.randint(1, 5)
            end = self.end = first_end + self.random.choice((0, 3))
            self.sends.append((first_end, end))
        flush, replicas = self.random.random() < 0.5, self.random.random() < 0.8
        settled = self.acks.appended(end, self.now, flush=flush, replicas=replicas, first_end=first_end)
        self.waits[settled.ticket] = Wait(first_end, end, self.now, flush, replicas)
        self.look()
        self.settled(list(settled.settles))

    def happen(self) -> None:
        rng, name = self.random, self.random.choice("abc")
        slave = self.slaves.get(name)
        match rng.choice(("send", "send", "send", "flush", "report", "report", "connect", "leave", "tick")):
            case "send":
                self.send()
            case "flush":
                self.disk = rng.randint(self.disk, self.end)
                self.settled(self.acks.flushed(self.disk, self.now))
            case "report" if slave is not None:
                slave.acked = max(slave.acked, rng.randint(slave.first, self.end))
                self.look()
                self.settled(self.acks.reported(name, slave.acked, self.now))
            case "connect":
                first = rng.choice((0, rng.randint(0, self.end)))
                self.slaves[name] = Slave(first)
                self.settled(self.acks.connected(name, rng.randint(first, self.end), self.now, first=first))
            case "leave":
                self.slaves.pop(name, None)
                self.settled(self.acks.disconnected(name, self.now))
            case _:
                self.settled(self.acks.tick(self.now))


@pytest.mark.rule("H9")
@given(st.integers(0, 1 << 32))
def test_h9_in_any_order_of_events_nobody_is_told_what_was_never_true(seed: int) -> None:
    schedule = Schedule(seed)
    for _ in range(60):
        schedule.now += schedule.random.choice((0.0, 0.1, 1.0))
        schedule.happen()
        schedule.settled(schedule.acks.tick(schedule.now))
        wake_at = schedule.acks.wake_at()
        assert wake_at is None or wake_at > schedule.now
        assert all(schedule.now < wait.ends_at for wait in schedule.waits.values())
