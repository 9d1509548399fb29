"""What an original's HA port sent and an original slave reported, played against our feed and our follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.ha_log import MemoryLog
from tallystick.rocketmq.ha.feed import Acked, Action, Disconnect, FeedCore, Greet, SendHeartbeat, StartFeed
from tallystick.rocketmq.ha.follow import Append, FollowCore, SendToMaster
from tallystick.rocketmq.ha.log import range_of
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import HEAD, REPORT

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "ha.json").read_text())
MASTER, SLAVE = GOLDEN["master"], GOLDEN["slave"]
FILE = 16 * 1024 * 1024
# The recorded master had these, as haSendHeartbeatInterval and haHousekeepingInterval.
SETTINGS = HaSettings(heartbeat_ms=1000, housekeeping_ms=4000)


class Port:
    """A feed over a log of this size, and the frames that it sends."""

    def __init__(self, size: int, *, file_bytes: int = FILE) -> None:
        self.log = MemoryLog(bytes(size), file_bytes=file_bytes)
        self.feed = FeedCore(SETTINGS, file_bytes, 0.0)
        self.closed: str | None = None
        self.acked: list[int] = []
        self.greeted = False

    def says(self, data: bytes, now: float) -> list[bytes]:
        return self._frames(self.feed.received(data, range_of(self.log), now), now)

    def waits(self, now: float) -> list[bytes]:
        return self._frames(self.feed.tick(range_of(self.log), now, writable=True), now)

    def _frames(self, actions: list[Action], now: float) -> list[bytes]:
        frames: list[bytes] = []
        for action in actions:
            match action:
                case SendHeartbeat(offset):
                    frames.append(HEAD.pack(offset, 0))
                case Acked(offset):
                    self.acked.append(offset)
                case Disconnect(reason):
                    self.closed = reason
                case Greet():
                    self.greeted = True
                case _:
                    assert isinstance(action, StartFeed)
        while self.feed.feeding and (piece := self.log.slice(self.feed.position, 1 << 20)):
            parts = self.feed.cut(piece, now)
            frames += [bytes(head) + bytes(body) for head, body in zip(parts[::2], parts[1::2], strict=True)]
        return frames


def heads(frames: list[bytes]) -> list[list[int]]:
    return [list(HEAD.unpack_from(frame)) for frame in frames]


def report(offset: int) -> bytes:
    return REPORT.pack(offset)


def test_a_first_report_of_0() -> None:
    recorded = MASTER["ha_report_0"]
    frames = Port(884).says(bytes.fromhex(recorded["sent"]), now=3.0)
    assert heads(frames) == recorded["frame_headers"]
    # The recorder kept the two frames' bytes in a row, the second one's head and the start of its body.
    assert b"".join(frames).hex().startswith(recorded["first_32_bytes"][:48])


def test_heartbeats() -> None:
    port = Port(884)
    port.says(report(884), 0.0)
    assert [port.waits(float(second))[0].hex() for second in (1, 2, 3)] == [
        beat for _, beat in MASTER["ha_heartbeat"]["beats"]
    ]


def test_an_ack_in_two_pieces() -> None:
    assert MASTER["report_split_1_7"]["status"] == "SEND_OK"
    port = Port(884)
    port.says(report(0), 0.0)
    port.says(report(884)[:1], 0.0)
    assert port.acked == []
    port.says(report(884)[1:], 0.0)
    assert port.acked == [884]


def test_the_last_of_three_reports_counts() -> None:
    assert MASTER["report_three_last_lower"]["status"] == "FLUSH_SLAVE_TIMEOUT"
    port = Port(884)
    port.says(report(0), 0.0)
    port.says(report(100) + report(884) + report(200), 0.0)
    assert port.acked == [200]


def test_a_silent_slave() -> None:
    *_, (seconds, event) = MASTER["ha_housekeeping"]["events"]
    assert event == "EOF"
    port = Port(884)
    port.says(report(884), 0.0)
    port.waits(seconds - 0.1)
    assert port.closed is None
    port.waits(seconds)
    assert port.closed is not None


def test_after_the_question_a_report_is_not_enough() -> None:
    """The original sends nothing after -1, and then serves a report. Ours knows that it has a slave of ours, greets it
    and waits for its hello (docs/divergence.md)."""
    assert MASTER["ha_report_negative"]["got"] == []
    assert len(MASTER["ha_report_after_negative"]["got"]) == 3
    port = Port(293 + 1767)
    assert port.says(report(-1), 0.0) == []
    assert port.greeted
    assert port.says(report(293), 1.0) == []


def test_a_first_report_inside_a_record() -> None:
    recorded = [frame for _, frame in MASTER["ha_report_mid_record"]["got"]]
    port = Port(100 + 1960)
    assert [frame.hex()[:24] for frame in port.says(report(100), 0.0)] == [recorded[0][:24]]
    assert port.waits(1.0)[0].hex() == recorded[1]


def test_an_empty_slave_gets_the_newest_file() -> None:
    recorded = MASTER["ha_report_0_second_file"]
    sizes, frames = recorded["sizes"], Port(recorded["max"]).says(report(0), 0.0)
    assert heads(frames)[0] == recorded["first_frame"]
    assert {size for _, size in heads(frames)} <= set(sizes)
    assert len(frames) + 1 == recorded["frames"], "the recorded ones have a heartbeat more"


def test_no_frame_crosses_the_border_of_two_files() -> None:
    recorded = MASTER["ha_file_border"]
    [[offset, size]], [[next_offset, next_size]] = recorded["border"], recorded["next"]
    found = heads(Port(next_offset + next_size).says(report(offset), 0.0))
    assert found == [[offset, size], [next_offset, next_size]]


@pytest.mark.parametrize("name", ["ha_report_beyond_end", "ha_report_minus5"])
def test_where_the_original_sends_heartbeats_for_ever_ours_closes(name: str) -> None:
    """A slave ahead of its master, and a number that is no offset (docs/divergence.md)."""
    (beat,) = {bytes.fromhex(beat) for _, beat in MASTER[name]["beats" if "beats" in MASTER[name] else "got"]}
    offset, size = HEAD.unpack(beat)
    assert size == 0
    port = Port(2060)
    assert port.says(report(offset), 0.0) == []
    assert port.closed is not None


def test_a_forged_ack_that_the_original_believes_ends_the_link() -> None:
    assert MASTER["ha_forged_ack"]["result"][0] == "SEND_OK"
    port = Port(2060)
    port.says(report(2060), 0.0)
    port.says(report(1 << 62), 0.0)
    assert port.acked == []
    assert port.closed is not None


class Slave:
    """A follow that an original master does not greet; what it reports."""

    def __init__(self, end: int, start: int = 0) -> None:
        self.log = MemoryLog(start=start)
        if end:
            self.log.append_raw(end, b"")
        self.core = FollowCore(HaSettings(), range_of(self.log), (), 0.0)
        self.retry_s: float | None = None
        self.core.connected(0.0)
        self.reports = self._do(list(self.core.tick(1.0)))

    def hears(self, data: bytes, now: float = 2.0) -> list[int]:
        return self._do(list(self.core.received(memoryview(data), now)))

    def _do(self, due: list[Any]) -> list[int]:
        reports = []
        while due:
            match due.pop(0):
                case SendToMaster(data):
                    reports.append(REPORT.unpack(data)[0])
                case Append(offset, parts):
                    self.log.append_raw(offset, b"".join(parts))
                    due += self.core.appended(range_of(self.log), 2.0)
                case other:
                    self.retry_s = getattr(other, "retry_s", self.retry_s)
        return reports


def values(name: str) -> list[int]:
    return [value for _, value in SLAVE[name]["reports"]]


def frame(offset: int, size: int) -> bytes:
    return HEAD.pack(offset, size) + bytes(size)


def test_what_a_slave_reports() -> None:
    """One life of the recorded slave, step for step."""
    slave = Slave(0)
    assert slave.reports == values("slave_first_report")[:1]
    start, size = SLAVE["slave_accepts_start"]["start"], SLAVE["slave_accepts_start"]["len"]
    assert slave.hears(frame(start, size)) == values("slave_accepts_start")
    end = SLAVE["slave_bytewise"]["end"]
    reports = [slave.hears(bytes([byte])) for byte in frame(start + size, end - start - size)]
    assert reports[-1] == values("slave_bytewise")
    first, cut = SLAVE["slave_mid_record_cut"]["first"], SLAVE["slave_mid_record_cut"]["end"]
    assert slave.hears(frame(end, first - end)) + slave.hears(frame(first, cut - first)) == values(
        "slave_mid_record_cut"
    )
    assert slave.hears(frame(cut, 0)) == values("slave_heartbeat_ok")
    for size in (262144, 1048576, 4194292):
        recorded = SLAVE[f"slave_frame_{size}"]
        assert slave.hears(frame(recorded["end"] - size, size)) == values(f"slave_frame_{size}")
        assert slave.log.end == recorded["end"]


@pytest.mark.parametrize("name", ["slave_wrong_offset", "slave_heartbeat_wrong_offset"])
def test_a_wrong_offset(name: str) -> None:
    [[_, event]] = SLAVE[name]["events"]
    assert event == "EOF"
    slave = Slave(1000)
    slave.hears(frame(1001, 0 if "heartbeat" in name else 8))
    assert slave.retry_s == SLAVE["slave_reconnect"]["seconds"] == 5.0


def test_an_impossible_size_ends_the_link_at_once() -> None:
    """The original keeps still, until the next data or for ever (docs/divergence.md)."""
    assert values("slave_frame_4194293") == []
    assert SLAVE["slave_size_minus1"]["alive"]
    for size in (-1, 4194293):
        slave = Slave(1000)
        slave.hears(HEAD.pack(1000, size))
        assert slave.retry_s == 5.0
