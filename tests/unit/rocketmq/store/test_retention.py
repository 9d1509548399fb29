"""Which files go."""

from __future__ import annotations

import time

import pytest

from tallystick.rocketmq.store.retention import MAX_FILES, files_to_drop, used_percent
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime.disk import Usage

HOUR_MS = 3_600_000
NOW = 1_700_000_000_000
OLD, YOUNG = NOW - 73 * HOUR_MS, NOW - 71 * HOUR_MS
HOUR = time.localtime(NOW / 1000).tm_hour
AT_THE_HOUR, ANOTHER_HOUR = StoreSettings(delete_hour=HOUR), StoreSettings(delete_hour=(HOUR + 1) % 24)


@pytest.mark.parametrize(
    ("newest_ms", "used", "settings", "expected"),
    [
        ([OLD, OLD, YOUNG], 10, AT_THE_HOUR, 2),
        ([OLD, OLD, YOUNG], 10, ANOTHER_HOUR, 0),
        ([OLD, OLD, YOUNG], 76, ANOTHER_HOUR, 2),
        ([YOUNG, OLD], 76, ANOTHER_HOUR, 0),
        ([YOUNG, YOUNG], 86, ANOTHER_HOUR, 2),
        ([OLD] * 50, 10, AT_THE_HOUR, MAX_FILES),
        ([YOUNG] * 50, 99, ANOTHER_HOUR, MAX_FILES),
        ([], 99, AT_THE_HOUR, 0),
    ],
)
def test_files_to_drop(newest_ms: list[int], used: float, settings: StoreSettings, expected: int) -> None:
    assert files_to_drop(newest_ms, used, NOW, settings) == expected


def test_used_percent() -> None:
    assert used_percent(Usage(200, 50)) == 75
    assert used_percent(Usage(0, 0)) == 0


@pytest.mark.parametrize(
    ("total", "free", "reserved", "expected"),
    [
        (1_000, 500, 50, 47.4),  # ext4: 5 % for the administrator; 50 % if those counted as used
        (100_000, 16_000, 70_000, 46.7),  # a quota: (blocks - available) / blocks said 84 %
        (100_000, 0, 50_000, 100.0),  # nothing is left to this process
        (100_000, 0, 100_000, 0.0),
    ],
)
def test_reserved_blocks_are_neither_used_nor_free(total: int, free: int, reserved: int, expected: float) -> None:
    """As ``df`` and the original count: 28,096 of 30,000 acknowledged messages were deleted at 60 % of real use."""
    usage = Usage(total, free, reserved)
    assert round(used_percent(usage), 1) == expected
    assert files_to_drop([YOUNG] * 5, used_percent(usage), NOW, ANOTHER_HOUR) == (5 if expected > 85 else 0)
