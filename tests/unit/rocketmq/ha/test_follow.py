from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ha_log import MemoryLog
from tallystick.rocketmq.ha.follow import (
    MAX_FRAMES,
    Action,
    Append,
    FollowCore,
    Following,
    Reconnect,
    SendToMaster,
    Stage,
)
from tallystick.rocketmq.ha.log import LogRange, range_of
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import ASK, HEAD, MAX_BODY_BYTES, REPORT, MasterHello, SlaveHello, decode_slave_hello

HELLO = MasterHello(first=64, end=4000, flushed=3000)


class Link:
    """A Follow with a log behind it, driven like its shell drives it."""

    def __init__(self, log: MemoryLog | None = None, settings: HaSettings | None = None) -> None:
        self.log = log if log is not None else MemoryLog(bytes(1000))
        self.settings = settings or HaSettings()
        self.core = FollowCore(self.settings, range_of(self.log), (), 0.0)
        self.sent: list[bytes] = []
        self.others: list[Action] = []
        self.do(self.core.connected(0.0), 0.0)

    def do(self, actions: list[Action], now: float) -> None:
        due = list(actions)
        while due:
            action = due.pop(0)
            if isinstance(action, SendToMaster):
                self.sent.append(action.data)
            elif isinstance(action, Append):
                self.log.append_raw(action.offset, b"".join(action.parts))
                due += self.core.appended(range_of(self.log), now)
            else:
                self.others.append(action)

    def hear(self, data: bytes, now: float = 0.0) -> None:
        self.do(self.core.received(memoryview(data), now), now)

    def tick(self, now: float) -> None:
        self.do(self.core.tick(now), now)

    def flush(self, now: float = 0.0) -> None:
        self.log.flush()
        self.do(self.core.flushed(range_of(self.log), now), now)

    def reports(self) -> list[int]:
        found = [REPORT.unpack(data)[0] for data in self.sent if len(data) == REPORT.size]
        self.sent.clear()
        return found

    @property
    def close(self) -> Reconnect:
        [close] = self.others
        assert isinstance(close, Reconnect)
        return close


def frame(offset: int, body: bytes = b"") -> bytes:
    return HEAD.pack(offset, len(body)) + body


def plain(log: MemoryLog | None = None, settings: HaSettings | None = None) -> Link:
    """After the wait for a greeting that an original master does not send."""
    link = Link(log, settings)
    link.tick(1.0)
    assert link.others.pop() == Following(proven=False)
    link.sent.clear()
    return link


@pytest.mark.rule("H4")
def test_h4_the_first_report_is_where_the_log_ends() -> None:
    link = Link()
    assert link.reports() == [ASK]
    link.tick(0.9)
    assert link.reports() == []
    link.tick(1.0)
    assert link.reports() == [1000]
    assert link.others == [Following(proven=False)]


def test_a_master_of_ours_is_told_who_we_are_and_what_we_have() -> None:
    link = Link()
    link.sent.clear()
    link.hear(HELLO.encode())
    [hello] = link.sent
    assert decode_slave_hello(hello[16:]) == SlaveHello("slave", 0, 1000, 1000)
    assert len(hello) % 8 == 0
    link.sent.clear()
    link.hear(frame(1000))
    assert link.others == [Following(proven=True)]
    assert link.reports() == [1000], "an ack at once: the position alone counts as none"
    assert link.core.master == HELLO


@pytest.mark.parametrize(("whole", "start"), [(False, None), (True, 64)])
def test_an_empty_slave_asks_for_the_newest_file_or_for_all(whole: bool, start: int | None) -> None:
    link = Link(MemoryLog(), HaSettings(copy_whole_log=whole))
    link.sent.clear()
    link.hear(HELLO.encode())
    assert decode_slave_hello(link.sent[0][16:]).start == start


@pytest.mark.rule("H5")
def test_h5_a_report_after_each_read_and_each_5_seconds() -> None:
    link = plain()
    link.hear(frame(1000, b"a" * 10) + frame(1010, b"b" * 20) + frame(1030, b"c"), 2.0)
    assert link.reports() == [1031]
    assert link.log.appends == [(1000, 31)], "one append a read"
    link.hear(frame(1031), 3.0)
    assert link.reports() == [], "a heartbeat is not answered"
    link.tick(6.9)
    assert link.reports() == []
    link.tick(7.0)
    assert link.reports() == [1031]
    assert link.core.wake_at() == 12.0


@pytest.mark.rule("H6")
def test_h6_a_silent_master_is_given_up_and_tried_again_at_once() -> None:
    link = plain()
    link.hear(frame(1000), 5.0)
    link.tick(24.9)
    assert link.others == []
    link.tick(25.0)
    assert link.close.retry_s == 0.0 and link.close.at_once
    assert link.core.wake_at() is None and link.core.tick(26.0) == []


@pytest.mark.rule("H8")
@pytest.mark.parametrize("data", [frame(1001, b"x"), frame(999, b"x"), frame(0, b"x"), frame(1001), frame(-5)])
def test_h8_an_offset_that_is_not_the_end_closes_the_link_for_5_seconds(data: bytes) -> None:
    link = plain()
    link.hear(frame(1000, b"good"))
    link.log.append_raw(1004, b"")
    link.hear(data)
    assert link.close.retry_s == 5.0
    assert link.log.end == 1004


@pytest.mark.rule("H8")
def test_h8_what_came_before_a_wrong_frame_is_kept() -> None:
    link = plain()
    link.hear(frame(1000, b"good") + frame(77, b"bad"))
    assert link.log.end == 1004
    assert link.close.reason == "the master sent offset 77, and the log ends at 1004"


def test_an_empty_log_begins_where_the_master_does() -> None:
    link = plain(MemoryLog(file_bytes=1000))
    link.hear(frame(5000) + frame(5300, b"abc") + frame(5303, b"de"))
    assert (link.log.first, link.log.end) == (5000, 5305)
    assert link.reports() == [5305]


@pytest.mark.rule("N6")
@pytest.mark.parametrize("size", [-1, -(1 << 31), MAX_BODY_BYTES + 1, (1 << 31) - 1])
def test_an_impossible_size_closes_the_link(size: int) -> None:
    link = plain()
    link.hear(HEAD.pack(1000, size))
    assert f"{size}" in link.close.reason


def test_the_longest_body_that_an_original_slave_takes() -> None:
    link = plain()
    link.hear(frame(1000, bytes(MAX_BODY_BYTES)))
    assert link.reports() == [1000 + MAX_BODY_BYTES]


def test_half_a_record_is_kept_and_acknowledged() -> None:
    link = plain()
    whole = frame(1000, b"0123456789")
    link.hear(whole[:15])
    assert link.reports() == [1003]
    link.hear(whole[15:])
    assert link.reports() == [1010]


def test_a_slave_that_promises_synced_bytes_reports_those() -> None:
    """R1: and its first report is the end of a log that is synced."""
    log = MemoryLog(bytes(1000))
    log.flushed = 900
    link = Link(log, HaSettings(sync_flush=True))
    assert link.reports() == []
    link.flush()
    assert link.reports() == [ASK]
    link.tick(1.0)
    assert link.reports() == [1000]
    link.hear(frame(1000, b"abc"), 1.0)
    assert link.reports() == []
    link.tick(6.0)
    assert link.reports() == [1000]
    link.flush(6.1)
    assert link.reports() == [1003]


def test_a_refusal_is_passed_on() -> None:
    link = Link()
    link.hear(HELLO.encode())
    link.hear(MasterHello(0, 10, 10, refused="the logs differ").encode())
    assert link.close == Reconnect("the logs differ", 5.0, refused=True)
    assert link.log.end == 1000


def test_a_greeting_that_comes_late_is_answered_all_the_same() -> None:
    link = plain()
    link.hear(HELLO.encode())
    [hello] = link.sent
    assert decode_slave_hello(hello[16:]).end == 1000
    link.hear(frame(1000, b"data"))
    assert link.others == [Following(proven=True)]
    assert link.log.end == 1004


def test_a_greeting_behind_data_ends_the_link() -> None:
    link = plain()
    link.hear(frame(1000, b"data") + HELLO.encode())
    assert "greeted after" in link.close.reason


def test_the_alarm_never_rings_in_vain() -> None:
    for start in (35.397, 0.1, 12345.678):
        core = FollowCore(HaSettings(), LogRange(0, 0, 0), (), start)
        core.connected(start)
        for _ in range(2):
            due = core.wake_at()
            assert due is not None and core.tick(due)


@pytest.mark.parametrize(
    "data",
    [
        frame(1000, b"before it was asked"),
        frame(-1),
        HEAD.pack(-1, 1 << 20),
        frame(-1, b"not JSON"),
        frame(-1, b'{"first":5,"end":4,"flushed":0}'),
        frame(-1, b'{"first":0,"end":9223372036854775808,"flushed":0}'),
    ],
)
def test_a_master_that_breaks_the_rules_of_the_greeting(data: bytes) -> None:
    link = Link()
    link.hear(data)
    assert link.close.retry_s == 5.0
    assert link.log.end == 1000


@given(st.integers(0, 1 << 32))
def test_frames_cut_anywhere_make_the_same_log(seed: int) -> None:
    rng = random.Random(seed)
    log = rng.randbytes(rng.randint(1, 400))
    data, at = HELLO.encode() + frame(0), 0
    while at < len(log):
        body = log[at : at + rng.randint(1, 60)]
        data += frame(at, body) + (frame(at + len(body)) if rng.random() < 0.3 else b"")
        at += len(body)
    link = Link(MemoryLog())
    while data:
        size = rng.randint(1, 50)
        link.hear(data[:size])
        data = data[size:]
    assert bytes(link.log.data) == log
    assert link.others == [Following(proven=True)]
    assert link.reports()[-1] == len(log)


@given(st.binary(max_size=300))
def test_any_bytes_are_appended_in_order_or_end_the_link(data: bytes) -> None:
    core = FollowCore(HaSettings(), LogRange(0, 0, 0), (), 0.0)
    core.connected(0.0)
    core.tick(1.0)
    end = None
    for at in range(0, len(data), 7):
        for action in core.received(memoryview(data)[at : at + 7], 0.0):
            if isinstance(action, Append):
                assert end is None or action.offset == end
                end = action.offset + sum(map(len, action.parts))
    assert core.stage in (Stage.FOLLOWING, Stage.CLOSED)


@pytest.mark.parametrize("body", [b"", b"x"])
def test_very_many_frames_in_one_read_end_the_link(body: bytes) -> None:
    """87,000 heartbeats in a read of 1 MiB were a turn of 200 ms, again and again."""
    link = plain()
    link.hear(b"".join(frame(1000 + number * len(body), body) for number in range(MAX_FRAMES)))
    assert link.others == [] and link.log.end == 1000 + MAX_FRAMES * len(body)
    link.hear(b"".join(frame(link.log.end + number * len(body), body) for number in range(MAX_FRAMES + 5)))
    assert "many frames" in link.close.reason and link.close.retry_s > 0
    assert link.log.end == 1000 + 2 * MAX_FRAMES * len(body)
