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
