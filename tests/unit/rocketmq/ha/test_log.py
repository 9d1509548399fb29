from __future__ import annotations

from support.ha_log import MemoryLog
from tallystick.rocketmq.ha.log import LogRange, place_of, range_of


def test_a_log_without_a_byte_has_no_place() -> None:
    assert place_of(MemoryLog(start=8192)) == LogRange(0, 0, 0)
    assert range_of(MemoryLog(start=8192)) == LogRange(8192, 8192, 0)
    assert place_of(MemoryLog(b"x", start=8192)) == range_of(MemoryLog(b"x", start=8192)) == LogRange(8192, 8193, 8193)
