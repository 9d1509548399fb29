from __future__ import annotations

from typing import Any

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import MAX_BODY_BYTES


@pytest.mark.rule("H5", "H6", "H7", "H9", "H10")
def test_h5_to_h10_defaults() -> None:
    settings = HaSettings()
    assert (settings.heartbeat_ms, settings.housekeeping_ms, settings.retry_ms) == (5000, 20_000, 5000)
    assert (settings.batch_bytes, settings.slave_timeout_ms, settings.max_gap_bytes) == (32768, 5000, 256 * 1024**2)


@pytest.mark.parametrize(("in_sync", "slaves"), [(1, 1), (2, 1), (3, 2)])
def test_copies_count_the_masters_own(in_sync: int, slaves: int) -> None:
    assert HaSettings(in_sync_replicas=in_sync).slaves_needed == slaves


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"heartbeat_ms": 0},
        {"batch_bytes": MAX_BODY_BYTES + 1},
        {"slave_id": ""},
        {"slave_id": "a" * 256},
        {"max_slaves": 0},
        {"max_strangers": 0},
        {"greeting_ms": 0},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        HaSettings(**wrong)
