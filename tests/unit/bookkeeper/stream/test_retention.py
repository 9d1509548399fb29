"""Which ledgers retention deletes."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.stream.retention import trimmable
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire import ledger_runs
from tallystick.bookkeeper.wire.ledger_runs import RUN_LEDGERS, joined
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger

NOW_MS = 1_000_000
LEDGERS = tuple(StreamLedger(n, 10, 100, NOW_MS - (6 - n) * 10_000) for n in range(1, 6))  # 50, 40, 30, 20, 10 s old
INFO = StreamInfo((*LEDGERS, StreamLedger(9, has_counts=False)))


@pytest.mark.rule("Q18")
@pytest.mark.parametrize(
    ("seconds", "size", "dropped"),
    [
        (-1, -1, []),
        (0, 0, [1, 2, 3, 4, 5]),
        (25, -1, [1, 2, 3]),
        (30, -1, [1, 2]),
        (1000, -1, []),
        (-1, 500, []),
        (-1, 400, [1]),
        (-1, 399, [1]),
        (-1, 0, [1, 2, 3, 4, 5]),
        (25, 100, [1, 2, 3, 4]),
        (45, 200, [1, 2, 3]),
    ],
)
def test_q18_either_limit_deletes(seconds: int, size: int, dropped: list[int]) -> None:
    settings = StreamSettings(retention_s=seconds, retention_bytes=size)
    assert trimmable(INFO, [], settings, NOW_MS) == dropped
    assert settings.has_retention is bool(seconds != -1 or size != -1)


@pytest.mark.parametrize(
    ("marks", "dropped"),
    [
        ([Position(2, 8)], [1]),
        ([Position(2, 9)], [1, 2]),
        ([Position(3, -1)], [1, 2]),
        ([Position(9, -1), Position(4, 3)], [1, 2, 3]),
        ([Position(9, 100), EARLIEST], []),
        ([Position(9, 100)], [1, 2, 3, 4, 5]),
    ],
)
def test_the_slowest_cursor_keeps_what_it_needs(marks: list[Position], dropped: list[int]) -> None:
    assert trimmable(INFO, marks, StreamSettings(retention_s=0), NOW_MS) == dropped


def test_the_newest_ledger_stays_and_what_is_not_closed_or_elsewhere() -> None:
    settings = StreamSettings(retention_s=0)
    assert trimmable(StreamInfo(LEDGERS), [], settings, NOW_MS) == [1, 2, 3, 4], "it was terminated"
    open_one, offloaded = StreamLedger(3, has_counts=False), StreamLedger(3, 10, 100, 1, offload=b"somewhere")
    for third in (open_one, offloaded):
        info = StreamInfo((*LEDGERS[:2], third, *LEDGERS[3:]))
        assert trimmable(info, [], settings, NOW_MS) == [1, 2]
    assert trimmable(StreamInfo(), [], settings, NOW_MS) == []


@pytest.mark.parametrize(("seconds", "size"), [(0, -1), (-1, 0)])
def test_of_very_many_ledgers_no_more_are_looked_at_than_leave(
    monkeypatch: pytest.MonkeyPatch, seconds: int, size: int
) -> None:
    ledgers = [StreamLedger(n, 10, 100, 1) for n in range(10_000)]
    info = StreamInfo(joined((), [*ledgers, StreamLedger(10_000, has_counts=False)]))
    made = list[int]()

    def counting(ledger: int, entries: int, size: int, timestamp_ms: int) -> StreamLedger:
        made.append(ledger)
        return StreamLedger(ledger, entries, size, timestamp_ms)

    monkeypatch.setattr(ledger_runs, "StreamLedger", counting)
    settings = StreamSettings(retention_s=seconds, retention_bytes=size)
    assert trimmable(info, [], settings, NOW_MS, most=500) == list(range(500))
    assert len(made) <= RUN_LEDGERS
