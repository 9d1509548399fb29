from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.rocketmq.ha.feed import (
    MAX_REPORTS,
    Acked,
    Action,
    Disconnect,
    FeedCore,
    Greet,
    SendHeartbeat,
    StartFeed,
    Verify,
)
from tallystick.rocketmq.ha.log import LogRange
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import ASK, HEAD, MAX_HELLO_BYTES, REPORT, SlaveHello, Span

FILE = 1 << 24
LOG = LogRange(first=FILE, end=3 * FILE + 100, flushed=0)
HELLO = SlaveHello("b", FILE, 2 * FILE, 2 * FILE, spans=(Span(2 * FILE - 8, 8, 7),))


def feed(now: float = 0.0) -> FeedCore:
    return FeedCore(HaSettings(), FILE, now)


def report(*offsets: int) -> bytes:
    return b"".join(map(REPORT.pack, offsets))


def fed(start: int = 2 * FILE) -> FeedCore:
    found = feed()
    assert found.received(report(start), LOG, 0.0) == [StartFeed(None, start, start, None, proven=False)]
    return found


def reason(actions: list[Action]) -> str:
    [close] = actions
    assert isinstance(close, Disconnect)
    return close.reason


@pytest.mark.rule("H4")
def test_h4_the_first_report_is_where_to_begin() -> None:
    assert fed().position == 2 * FILE
    assert fed(2 * FILE + 77).position == 2 * FILE + 77


@pytest.mark.rule("H4")
def test_h4_an_empty_slave_begins_at_the_newest_file() -> None:
    assert feed().received(report(0), LOG, 0.0) == [StartFeed(3 * FILE, 0, 3 * FILE, None, proven=False)]
    assert feed().received(report(0), LogRange(0, 500, 0), 0.0) == [StartFeed(0, 0, 0, None, proven=False)]


def test_nothing_is_sent_before_a_report() -> None:
    silent = feed()
    assert not silent.feeding
    assert silent.tick(LOG, 9.0, writable=True) == []
    assert silent.wake_at() == 10.0


def test_who_only_greets_is_closed_whatever_it_sends() -> None:
    """Eight bytes now and then kept a link open for ever."""
    greeting = feed()
    assert greeting.received(report(ASK), LOG, 0.0) == [Greet()]
    assert greeting.received(report(0), LOG, 9.0) == []
    assert greeting.wake_at() == 10.0
    assert "did not say in time" in reason(greeting.tick(LOG, 10.0, writable=True))


@pytest.mark.parametrize("reads", [1, 2, 65])
def test_who_greets_and_only_reports_is_closed_and_costs_nothing(reads: int) -> None:
    """Each report was cut off by a copy of all behind it: a read of 256 KiB took half a second."""
    greeting = feed()
    data = report(*[0] * MAX_REPORTS, 0)
    greeting.received(report(ASK), LOG, 0.0)
    step = -(-len(data) // reads)
    actions = [
        action
        for start in range(0, len(data), step)
        for action in greeting.received(data[start : start + step], LOG, 0.0)
    ]
    assert reason(actions) == f"more than {MAX_REPORTS} reports before its hello"
    assert greeting.received(HELLO.encode(), LOG, 0.0) == []


def test_a_slave_may_report_while_its_hello_is_on_its_way() -> None:
    greeting = feed()
    greeting.received(report(ASK, *[7] * MAX_REPORTS), LOG, 0.0)
    assert greeting.received(HELLO.encode(), LOG, 0.0) == [Verify(HELLO)]


@pytest.mark.rule("H6")
def test_h6_a_silent_slave_is_given_up() -> None:
    assert "heard nothing" in reason(FeedCore(HaSettings(greeting_ms=60_000), FILE, 0.0).tick(LOG, 20.0, writable=True))
    link = fed()
    link.received(report(2 * FILE), LOG, 15.0)
    assert "heard nothing" not in str(link.tick(LOG, 34.9, writable=True))
    assert link.tick(LOG, 35.0, writable=False) == [
        Disconnect("heard nothing from the slave for too long", at_once=True)
    ]
    assert link.wake_at() is None and link.tick(LOG, 36.0, writable=True) == []


@pytest.mark.rule("H6")
def test_h6_a_link_that_ends_is_given_up_when_nothing_is_heard_of_the_slave_for_long() -> None:
    link = feed()
    [close] = link.received(report(1 << 60), LOG, 3.0)
    assert isinstance(close, Disconnect) and not close.at_once
    assert link.wake_at() == 23.0 and link.tick(LOG, 22.9, writable=True) == []
    assert link.tick(LOG, 23.0, writable=True) == [Disconnect(close.reason, at_once=True)]
    assert link.wake_at() is None and link.tick(LOG, 24.0, writable=True) == []


def test_a_link_that_is_closed_ends_though_its_slave_takes_nothing() -> None:
    """It had acknowledged some bytes, so it kept its place among the strangers for ever: 32 of them kept slaves out."""
    link = fed()
    link.received(report(2 * FILE), LOG, 15.0)
    why = reason(link.received(report(5 * FILE), LOG, 16.0))
    assert "only" in why and link.received(report(2 * FILE), LOG, 30.0) == []
    assert link.wake_at() == 36.0 and link.tick(LOG, 35.9, writable=False) == []
    assert link.tick(LOG, 36.0, writable=False) == [Disconnect(why, at_once=True)]
    assert link.wake_at() is None and link.tick(LOG, 60.0, writable=False) == []


@pytest.mark.rule("H7")
def test_h7_frames_of_at_most_32_kib_follow_each_other() -> None:
    link = fed()
    data = memoryview(bytes(range(256)) * 300)
    frames = link.cut(data, 0.0)
    heads, bodies = frames[::2], frames[1::2]
    assert [HEAD.unpack(head) for head in heads] == [
        (2 * FILE, 32768),
        (2 * FILE + 32768, 32768),
        (2 * FILE + 65536, 11264),
    ]
    assert b"".join(bodies) == data
    assert link.position == 2 * FILE + len(data)


@pytest.mark.rule("H7")
def test_h7_heartbeats_after_silence_say_the_next_offset() -> None:
    link = fed()
    assert link.wake_at() == 5.0
    link.cut(memoryview(b"12345"), 3.0)
    assert link.tick(LOG, 7.9, writable=True) == []
    assert link.tick(LOG, 8.0, writable=True) == [SendHeartbeat(2 * FILE + 5)]
    assert link.wake_at() == 13.0
    assert link.tick(LOG, 13.0, writable=False) == [], "the last frame is not out yet"
    assert link.wake_at() == 18.0, "and looking again at once would spin"


def test_a_late_first_report_is_answered_with_a_heartbeat_first() -> None:
    """D15: the time counts from the accept."""
    late = feed().received(report(2 * FILE), LOG, 5.0)
    assert late == [StartFeed(None, 2 * FILE, 2 * FILE, None, proven=False), SendHeartbeat(2 * FILE)]


@pytest.mark.rule("H5")
def test_h5_a_report_is_an_ack_of_what_was_sent() -> None:
    link = fed()
    link.cut(memoryview(bytes(100)), 0.0)
    assert link.received(report(2 * FILE + 40), LOG, 1.0) == [Acked(2 * FILE + 40)]
    assert link.received(report(2 * FILE + 40), LOG, 1.0) == []
    assert link.received(report(2 * FILE + 100), LOG, 1.0) == [Acked(2 * FILE + 100)]


@pytest.mark.rule("N13")
@pytest.mark.parametrize("offset", [2 * FILE + 1, LOG.end, 1 << 62, -1, -5, -(1 << 63)])
def test_an_ack_of_what_was_never_sent_ends_the_link(offset: int) -> None:
    """R1: such an ack once made every send look replicated."""
    assert "acknowledged" in reason(fed().received(report(offset), LOG, 1.0))


def test_only_the_last_complete_report_of_a_read_counts() -> None:
    link = fed()
    link.cut(memoryview(bytes(100)), 0.0)
    data = report(2 * FILE + 90, 2 * FILE + 80, 2 * FILE + 10, 2 * FILE + 50)
    assert link.received(data[:-1], LOG, 1.0) == [Acked(2 * FILE + 10)]
    assert link.received(data[-1:], LOG, 1.0) == [Acked(2 * FILE + 50)]


@pytest.mark.parametrize("offset", [1, FILE - 1])
def test_a_slave_that_needs_what_was_deleted_is_told(offset: int) -> None:
    assert "the master's log begins at" in reason(feed().received(report(offset), LOG, 0.0))


def test_a_slave_that_retention_overtakes_is_told() -> None:
    """Found by the simulator: it got heartbeats for ever, and both sides thought that all was well."""
    link = fed()
    later = LogRange(3 * FILE, 4 * FILE, 0)
    assert "the master's log begins at" in reason(link.tick(later, 5.0, writable=True))


@pytest.mark.parametrize("offset", [LOG.end + 1, 1 << 62])
def test_a_slave_ahead_of_its_master_is_not_fed(offset: int) -> None:
    link = feed()
    assert "the master lost its end" in reason(link.received(report(offset), LOG, 0.0))
    assert link.received(report(LOG.end), LOG, 0.0) == [], "nothing more counts on this link"


@pytest.mark.rule("N13")
@pytest.mark.parametrize("offset", [-5, -(1 << 63)])
def test_a_negative_first_report_ends_the_link(offset: int) -> None:
    assert "cannot end" in reason(feed().received(report(offset), LOG, 0.0))


def test_a_slave_of_ours_is_greeted_and_compared() -> None:
    link = feed()
    assert link.received(report(-1), LOG, 0.0) == [Greet()]
    assert link.received(HELLO.encode(), LOG, 0.1) == [Verify(HELLO)]
    assert link.verified(HELLO, None, LOG, 0.1) == [
        StartFeed(FILE, 2 * FILE, 2 * FILE, "b", proven=True),
        SendHeartbeat(2 * FILE),
    ]
    assert link.received(report(2 * FILE), LOG, 0.2) == [Acked(2 * FILE)]


def test_an_empty_slave_of_ours_begins_where_it_says() -> None:
    for start, position in ((None, 3 * FILE), (FILE, FILE), (0, 0)):
        link = feed()
        hello = SlaveHello("b", 0, 0, start)
        link.received(report(-1) + hello.encode(), LOG, 0.0)
        assert link.verified(hello, None, LOG, 0.1)[0] == StartFeed(position, 0, position, "b", proven=True)


def test_a_slave_whose_log_differs_is_refused() -> None:
    link = feed()
    link.received(report(-1) + HELLO.encode(), LOG, 0.0)
    assert link.verified(HELLO, "they differ", LOG, 0.1) == [Greet("they differ"), Disconnect("they differ")]
    assert link.received(report(2 * FILE), LOG, 0.2) == []
    assert not link.feeding


def test_a_slave_of_ours_is_never_fed_without_a_comparison() -> None:
    """Found by the simulator: a late greeting, and the slave went on in the plain form with a log of its own."""
    link = feed()
    assert link.received(report(-1, 2 * FILE), LOG, 0.0) == [Greet()]
    assert link.received(report(2 * FILE), LOG, 5.0) == []
    assert not link.feeding
    assert link.received(report(2 * FILE) + HELLO.encode(), LOG, 6.0) == [Verify(HELLO)]


def test_the_alarm_never_rings_in_vain() -> None:
    """Found by the simulator: rounding made the deadline come and the time since not pass."""
    for start in (35.397, 0.1, 12345.678):
        link = feed(start)
        due = link.wake_at()
        assert due is not None and link.tick(LOG, due, writable=True)


@pytest.mark.parametrize(
    "data",
    [
        report(-2, 0),
        report(-2, -8),
        report(-2, 7),
        report(-2, MAX_HELLO_BYTES + 8),
        report(-2, 8) + b"not JSON",
        report(-2, 8) + b'{"a":1} ' + report(5),
        SlaveHello("", 0, 0, None).encode(),
        SlaveHello("b", 0, -1, None).encode(),
        SlaveHello("b", 0, 1 << 63, None).encode(),
    ],
)
def test_a_hello_that_is_none_ends_the_link(data: bytes) -> None:
    link = feed()
    link.received(report(-1), LOG, 0.0)
    assert reason(link.received(data, LOG, 0.0))


@given(st.binary(max_size=200), st.lists(st.integers(1, 50)))
def test_any_bytes_in_any_pieces_are_an_offset_or_the_end(data: bytes, sizes: list[int]) -> None:
    link, at = feed(), 0
    for size in [*sizes, len(data)]:
        for action in link.received(data[at : at + size], LOG, 0.0):
            assert isinstance(action, (StartFeed, Acked, Greet, Verify, Disconnect, SendHeartbeat))
            if isinstance(action, Acked):
                assert 0 <= action.offset <= link.position
        at += size
    assert len(link._buffer) <= 8 + MAX_HELLO_BYTES


@given(st.lists(st.integers(1, 40), min_size=1))
def test_a_greeting_in_any_pieces_is_the_same(sizes: list[int]) -> None:
    data, link, at, actions = report(-1) + HELLO.encode(), feed(), 0, list[Action]()
    for size in [*sizes, len(data)]:
        if data[at : at + size]:
            actions += link.received(data[at : at + size], LOG, 0.0)
        at += size
    assert actions == [Greet(), Verify(HELLO)]
