from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.rocketmq.ha.acks import AcksCore, Settle
from tallystick.rocketmq.ha.settings import MIB, HaSettings
from tallystick.rocketmq.wire.values import PutStatus

SETTINGS = HaSettings(slave_timeout_ms=3000, sync_flush_timeout_ms=5000)
OK, DISK, SLAVE, NO_SLAVE = (
    PutStatus.PUT_OK,
    PutStatus.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE,
)


def core(*positions: int, needs: int = 1) -> AcksCore:
    """With slaves a, b … at these positions."""
    acks = AcksCore(dataclasses.replace(SETTINGS, in_sync_replicas=needs + 1))
    for number, position in enumerate(positions):
        acks.connected("abcdef"[number], position, 0.0)
    return acks


def waits(acks: AcksCore, end: int, now: float = 0.0, *, flush: bool = False, replicas: bool = True) -> int:
    settled = acks.appended(end, now, flush=flush, replicas=replicas)
    assert settled.settles == ()
    return settled.ticket


def test_nothing_to_wait_for_is_over_at_once() -> None:
    settled = core().appended(10, 0.0, flush=False, replicas=False)
    assert settled.settles == (Settle(settled.ticket, OK),)


@pytest.mark.rule("H9")
def test_h9_an_ack_ends_all_waits_up_to_it_in_order() -> None:
    acks = core(0)
    first, second, third = waits(acks, 10), waits(acks, 20), waits(acks, 30)
    assert acks.reported("a", 9, 1.0) == []
    assert acks.reported("a", 20, 1.0) == [Settle(first, OK), Settle(second, OK)]
    assert acks.reported("a", 30, 1.0) == [Settle(third, OK)]


@pytest.mark.rule("H9")
def test_h9_who_asks_again_for_what_was_sent_earlier_waits_for_nothing_later() -> None:
    acks = core(0)
    first, last = waits(acks, 10), waits(acks, 30)
    again = waits(acks, 10, 1.0)
    assert acks.reported("a", 10, 1.0) == [Settle(first, OK)]
    assert acks.appended(10, 1.0, flush=False, replicas=True).settles[0].status is OK, "though its slave is late"
    assert acks.reported("a", 30, 1.0) == [Settle(last, OK), Settle(again, OK)], "behind those before it"


@pytest.mark.rule("H9", "H10")
def test_h9_what_a_slave_has_is_there_though_it_is_out_of_sync_now() -> None:
    acks = AcksCore(dataclasses.replace(SETTINGS, out_of_sync_when_late=True))
    acks.connected("a", 0, 0.0)
    waits(acks, 10)
    late = waits(acks, 20)
    acks.reported("a", 10, 1.0)
    assert acks.tick(3.0) == [Settle(late, SLAVE)]
    assert acks.appended(20, 4.0, flush=False, replicas=True).settles[0].status is NO_SLAVE
    assert acks.appended(10, 4.0, flush=False, replicas=True).settles[0].status is OK
    acks.reported("a", 15, 4.0)
    assert acks.is_late("a"), "an earlier end that was asked for makes nobody in time"


@pytest.mark.rule("H9")
def test_h9_the_time_out_is_counted_from_the_append() -> None:
    acks = core(0)
    early, late = waits(acks, 10, 1.0), waits(acks, 20, 2.0)
    assert acks.wake_at() == 4.0
    assert acks.tick(3.9) == []
    assert acks.tick(4.0) == [Settle(early, SLAVE)]
    assert acks.wake_at() == 5.0
    assert acks.tick(5.0) == [Settle(late, SLAVE)]
    assert acks.wake_at() is None


@pytest.mark.rule("H9")
def test_h9_the_default_is_five_seconds() -> None:
    acks = AcksCore(HaSettings())
    acks.connected("a", 0, 0.0)
    waits(acks, 10)
    assert acks.wake_at() == 5.0


@pytest.mark.rule("H10")
def test_h10_no_slave_is_said_at_once() -> None:
    settled = core().appended(10, 0.0, flush=False, replicas=True)
    assert settled.settles == (Settle(settled.ticket, NO_SLAVE),)


@pytest.mark.rule("H10")
@pytest.mark.parametrize("synced", [True, False])
def test_h10_no_slave_is_said_when_the_disk_has_it_and_not_before(synced: bool) -> None:
    acks = core()
    ticket = waits(acks, 10, flush=True)
    assert acks.flushed(9, 0.1) == []
    assert acks.tick(4.9) == []
    assert (acks.flushed(10, 4.9) if synced else acks.tick(5.0)) == [Settle(ticket, NO_SLAVE, not synced)]
    settled = acks.appended(10, 5.0, flush=True, replicas=True)
    assert settled.settles == ((Settle(settled.ticket, NO_SLAVE),) if synced else ())


@pytest.mark.rule("H10")
@pytest.mark.parametrize(("end", "available"), [(123 + 256 * MIB - 1, True), (123 + 256 * MIB, False)])
def test_h10_a_slave_too_far_behind_is_none(end: int, available: bool) -> None:
    acks = core(123)
    assert acks.available(end) is available
    assert bool(acks.appended(end, 0.0, flush=False, replicas=True).settles) is not available


@pytest.mark.rule("H10")
def test_h10_counts_slaves_less_than_the_gap_behind() -> None:
    gap = SETTINGS.max_gap_bytes
    acks = core(123, 124, 123, 125)
    assert [acks.in_sync(end) for end in (gap, 123 + gap, 124 + gap, 125 + gap)] == [4, 2, 1, 0]


def test_a_first_report_is_a_position_and_no_ack() -> None:
    """R1: a stale slave far ahead must not make sends look replicated."""
    acks = core(1000)
    ticket = waits(acks, 10)
    assert acks.reported("a", 10, 0.0) == [Settle(ticket, OK)]


def test_two_slaves_wanted_are_two_slaves() -> None:
    """R2: one slave, however often it reports or connects, is one."""
    acks = core(0, 0, needs=2)
    ticket = waits(acks, 10)
    assert acks.reported("a", 10, 0.0) == []
    acks.connected("a", 10, 0.0)
    assert acks.reported("a", 10, 0.0) == []
    assert acks.reported("b", 10, 0.0) == [Settle(ticket, OK)]


def test_what_a_slave_that_left_had_counts_no_more() -> None:
    acks = core(0, 0, needs=2)
    ticket = waits(acks, 10)
    acks.reported("a", 10, 0.0)
    acks.disconnected("a", 0.0)
    assert acks.reported("b", 10, 0.0) == []
    assert acks.appended(11, 0.0, flush=False, replicas=True).settles[0].status is NO_SLAVE
    acks.connected("a", 10, 0.5)
    assert acks.reported("a", 10, 0.5) == [Settle(ticket, OK)]


def test_who_waits_goes_on_waiting_when_the_slave_leaves() -> None:
    acks = core(0)
    ticket = waits(acks, 10)
    assert acks.disconnected("a", 0.1) == []
    assert acks.tick(3.0) == [Settle(ticket, SLAVE)]


def test_a_lower_report_takes_nothing_back() -> None:
    acks = core(0)
    acks.reported("a", 10, 0.0)
    acks.reported("a", 5, 0.0)
    assert acks.replicated(10) == 10


@pytest.mark.rule("H9")
def test_h9_an_ack_says_nothing_of_what_is_before_the_slaves_log() -> None:
    """An empty slave began behind sends that waited: its position was beyond them, and no slave had them."""
    acks = core(0)
    first, last = waits(acks, 10), waits(acks, 30, 1.0)
    acks.disconnected("a", 1.0)
    acks.connected("b", 0, 1.0, first=20)
    assert acks.reported("b", 30, 1.0) == [], "the wait before it is not over"
    assert acks.tick(3.0) == [Settle(first, SLAVE), Settle(last, OK)]
    again = acks.appended(20, 3.0, flush=False, replicas=True)
    assert again.settles == (Settle(again.ticket, NO_SLAVE),), "what ends where its log begins will never be there"
    assert acks.replicated(21) == 30


@pytest.mark.rule("H9")
def test_h9_the_sends_of_a_tick_are_replicated_when_the_first_of_them_is() -> None:
    acks = core(0)
    ticket = acks.appended(30, 0.0, flush=False, replicas=True, first_end=10).ticket
    acks.connected("b", 0, 0.0, first=20)
    assert acks.reported("b", 30, 0.0) == []
    assert acks.reported("a", 30, 0.1) == [Settle(ticket, OK)]


@pytest.mark.rule("H10")
def test_h10_what_is_sent_again_keeps_nobody_waiting_for_slaves_that_begin_behind_it() -> None:
    acks = core(0, needs=2)
    acks.connected("b", 30, 0.0, first=20)
    for end in (10, 40):
        again = acks.appended(end, 0.0, flush=False, replicas=True, first_end=10)
        assert again.settles == (Settle(again.ticket, NO_SLAVE),)
    ticket = waits(acks, 40)
    acks.reported("a", 40, 0.1)
    assert acks.reported("b", 40, 0.1) == [Settle(ticket, OK)]


def test_a_slave_is_late_for_nothing_that_is_before_its_log() -> None:
    acks = AcksCore(dataclasses.replace(SETTINGS, out_of_sync_when_late=True))
    acks.connected("a", 0, 0.0)
    ticket = waits(acks, 10)
    acks.connected("b", 0, 0.0, first=20)
    assert acks.tick(3.0) == [Settle(ticket, SLAVE)]
    assert (acks.is_late("a"), acks.is_late("b")) == (True, False)


@pytest.mark.rule("H9")
def test_h9_all_whose_time_is_up_are_told_what_is_true_of_each() -> None:
    acks = core(0)
    tickets = [waits(acks, 10), waits(acks, 30), waits(acks, 40)]
    acks.connected("b", 0, 0.0, first=20)
    acks.reported("b", 30, 0.0)
    assert acks.tick(3.0) == [
        Settle(ticket, status) for ticket, status in zip(tickets, (SLAVE, OK, SLAVE), strict=True)
    ]
    assert acks.wake_at() is None


def test_the_disk() -> None:
    acks = core()
    ticket = waits(acks, 10, flush=True, replicas=False)
    assert acks.flushed(9, 0.1) == []
    assert acks.flushed(10, 0.2) == [Settle(ticket, OK)]
    settled = acks.appended(10, 0.3, flush=True, replicas=False)
    assert settled.settles == (Settle(settled.ticket, OK),), "already synced"
    late = waits(acks, 11, 1.0, flush=True, replicas=False)
    assert acks.tick(6.0) == [Settle(late, DISK)]


def test_who_waits_for_earlier_bytes_behind_one_whose_time_is_up_is_told_at_once() -> None:
    """A send that is repeated waits for what was stored earlier: the disk has that, and hangs on what came later."""
    acks = core()
    first = waits(acks, 30, flush=True, replicas=False)
    again = waits(acks, 20, 1.0, flush=True, replicas=False)
    assert acks.flushed(20, 2.0) == []
    assert acks.tick(5.0) == [Settle(first, DISK), Settle(again, OK)]
    assert acks.wake_at() is None, "else the clock is woken for ever"


@pytest.mark.parametrize(
    ("events", "status", "disk_late", "at"),
    [
        (["flush", "ack"], OK, False, 1),
        (["ack", "flush"], OK, False, 1),
        (["ack", "time"], DISK, False, 1),
        (["flush", "time"], SLAVE, False, 1),
        (["time"], SLAVE, True, 0),
        (["slave time", "flush"], SLAVE, False, 1),
        (["slave time", "time"], SLAVE, True, 1),
        (["slave time", "ack", "flush"], SLAVE, False, 2),
    ],
)
def test_h9_both_gates_are_waited_for_and_the_slaves_word_wins_unless_it_is_ok(
    events: list[str], status: PutStatus, disk_late: bool, at: int
) -> None:
    acks = core(0)
    ticket = waits(acks, 10, flush=True)
    told = []
    for event in events:
        match event:
            case "flush":
                told.append(acks.flushed(10, 3.0 if "slave time" in events else 0.5))
            case "ack":
                told.append(acks.reported("a", 10, 3.0 if "slave time" in events else 0.5))
            case "slave time":
                told.append(acks.tick(3.0))
            case "time":
                told.append(acks.tick(9.0))
    assert [settles for settles in told if settles] == [[Settle(ticket, status, disk_late)]]
    assert told[at]
    assert acks.wake_at() is None or events[0] == "ack" or status is SLAVE


@pytest.mark.rule("H9", "H10")
def test_a_disk_that_was_late_before_the_slaves_were_is_told_of_too() -> None:
    acks = AcksCore(dataclasses.replace(SETTINGS, in_sync_replicas=2, sync_flush_timeout_ms=1000))
    acks.connected("a", 0, 0.0)
    ticket = waits(acks, 10, flush=True)
    assert acks.tick(1.0) == []
    assert acks.tick(3.0) == [Settle(ticket, SLAVE, disk_late=True)]


@dataclasses.dataclass
class Wait:
    """The dumb twin of a wait: looks at itself after every event."""

    end: int
    since: float
    disk: PutStatus | None
    slaves: PutStatus | None

    def look(self, now: float, disk: int, copies: int, needs: int) -> PutStatus | None:
        if self.disk is None:
            self.disk = OK if disk >= self.end else DISK if now >= self.since + 5.0 else None
        if self.slaves is None:
            self.slaves = OK if copies >= needs else SLAVE if now >= self.since + 3.0 else None
        if self.disk is None or self.slaves is None:
            return None
        return self.disk if self.slaves is OK else self.slaves


@given(st.integers(0, 1 << 32))
def test_the_core_and_its_dumb_twin_agree(seed: int) -> None:
    rng = random.Random(seed)
    needs = rng.choice((1, 1, 2))
    acks = core(needs=needs)
    now, end, disk = 0.0, 0, 0
    acked: dict[str, int] = {}
    waiting: dict[int, Wait] = {}
    for _ in range(60):
        now += rng.choice((0.0, 0.1, 1.0))
        slave = rng.choice("abc")
        settles: list[Settle] = []
        match rng.choice(("append", "append", "flush", "report", "report", "connect", "leave", "tick")):
            case "append":
                settles = acks.tick(now)
                end += rng.randint(1, 5)
                flush, replicas = rng.random() < 0.5, rng.random() < 0.7
                settled = acks.appended(end, now, flush=flush, replicas=replicas)
                settles += settled.settles
                slaves = OK if not replicas else NO_SLAVE if len(acked) < needs else None
                waiting[settled.ticket] = Wait(end, now, None if flush else OK, slaves)
            case "flush":
                disk = rng.randint(disk, end)
                settles = acks.flushed(disk, now)
            case "report" if slave in acked:
                acked[slave] = max(acked[slave], rng.randint(0, end))
                settles = acks.reported(slave, acked[slave], now)
            case "connect":
                acked[slave] = -1
                settles = acks.connected(slave, rng.randint(0, end), now)
            case "leave":
                acked.pop(slave, None)
                settles = acks.disconnected(slave, now)
            case _:
                settles = acks.tick(now)
        over = {}
        for ticket, wait in waiting.items():
            status = wait.look(now, disk, sum(ack >= wait.end for ack in acked.values()), needs)
            if status is not None:
                over[ticket] = status, wait.disk is DISK and status is not DISK
        assert {settle.ticket: (settle.status, settle.disk_late) for settle in settles} == over
        assert len(settles) == len(over), "each is told once"
        for ticket in over:
            del waiting[ticket]


def test_a_slave_that_was_late_is_out_of_sync_until_it_has_caught_up() -> None:
    """A slave that hung made every send of 20 s wait for 5 s."""
    acks = AcksCore(dataclasses.replace(SETTINGS, out_of_sync_when_late=True))
    acks.connected("a", 0, 0.0)
    first = waits(acks, 10)
    assert acks.tick(3.0) == [Settle(first, SLAVE)]
    assert acks.is_late("a") and not acks.available(10)
    settled = acks.appended(20, 3.5, flush=False, replicas=True)
    assert settled.settles == (Settle(settled.ticket, NO_SLAVE),)
    acks.reported("a", 10, 4.0)
    assert acks.is_late("a"), "it acknowledged what timed out, and lacks what came since"
    acks.reported("a", 20, 5.0)
    assert acks.available(20)
    assert acks.reported("a", 30, 6.0) == [] and waits(acks, 40, 6.0)


def test_only_the_slave_that_was_late_is_not_waited_for() -> None:
    acks = AcksCore(dataclasses.replace(SETTINGS, out_of_sync_when_late=True, in_sync_replicas=3))
    for slave in "ab":
        acks.connected(slave, 0, 0.0)
    ticket = waits(acks, 10)
    acks.reported("b", 10, 1.0)
    assert acks.tick(3.0) == [Settle(ticket, SLAVE)]
    assert (acks.is_late("a"), acks.is_late("b"), acks.in_sync(10)) == (True, False, 1)
    acks.connected("a", 10, 4.0)
    assert acks.in_sync(10) == 2, "a new link begins anew"


def test_without_the_setting_a_late_slave_is_waited_for_again() -> None:
    acks = core(0)
    waits(acks, 10)
    acks.tick(3.0)
    assert acks.available(10) and not acks.is_late("a")


def test_what_is_durable_stays_so_whichever_flush_reports_last() -> None:
    acks = core()
    acks.flushed(100, 0.0)
    acks.flushed(50, 0.0)
    settled = acks.appended(90, 0.0, flush=True, replicas=False)
    assert settled.settles == (Settle(settled.ticket, OK),)


@pytest.mark.rule("H10")
def test_h10_a_slave_that_reports_less_than_its_log_has_is_not_farther_away_for_it() -> None:
    """One that syncs before it reports tells of what is durable; its log was longer when it came."""
    acks = core(1000)
    acks.reported("a", 400, 0.0)
    assert acks.in_sync(999 + SETTINGS.max_gap_bytes) == 1
    assert acks.in_sync(1000 + SETTINGS.max_gap_bytes) == 0


@pytest.mark.rule("H9")
def test_h9_when_it_is_no_master_any_more_nobody_who_waits_is_told_yes() -> None:
    """Nor that nothing was stored: a time-out, of the slaves' where both have something to say."""
    acks = core(0)
    replicas, disk = waits(acks, 10), waits(acks, 20, flush=True, replicas=False)
    both, half = waits(acks, 30, flush=True), waits(acks, 40, flush=True)
    assert acks.flushed(20, 0.0) == [Settle(disk, OK)]
    disk = waits(acks, 50, flush=True, replicas=False)
    told = {settle.ticket: settle.status for settle in acks.give_up()}
    assert told == {replicas: SLAVE, both: SLAVE, half: SLAVE, disk: DISK}
    assert acks.give_up() == [] and acks.wake_at() is None
