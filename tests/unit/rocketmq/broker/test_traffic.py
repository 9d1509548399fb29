from __future__ import annotations

import pytest

from tallystick.rocketmq.broker import traffic as traffic_module
from tallystick.rocketmq.broker.traffic import DAY_MS, Daily, Rate, Traffic

NOON = 20_000 * DAY_MS + DAY_MS // 2


def test_a_rate_is_over_what_it_is_asked_for() -> None:
    rate = Rate()
    assert rate.per_second(NOON) == 0
    rate.add(30, NOON)
    rate.add(30, NOON + 9_999)
    rate.add(600, NOON + 20_000)
    assert rate.per_second(NOON + 20_000, 10_000) == 60
    assert rate.per_second(NOON + 20_000) == 11
    assert rate.per_second(NOON + 60_000) == 10
    assert rate.per_second(NOON + 90_000) == 0
    assert rate.per_second(NOON + 90_000, 600_000) == 1.1


def test_a_clock_that_steps_back_loses_nothing() -> None:
    rate = Rate()
    rate.add(60, NOON)
    rate.add(60, NOON - 300_000)
    assert rate.per_second(NOON) == 2


def test_old_slots_go() -> None:
    rate = Rate()
    for slot in range(1000):
        rate.add(10, NOON + slot * 10_000)
    assert rate.per_second(NOON + 9_990_000, 600_000) == 1


def test_days() -> None:
    daily = Daily()
    daily.add(5, NOON)
    daily.add(5, NOON + DAY_MS)
    assert (daily.total, daily.today, daily.yesterday) == (10, 5, 0)
    daily.turn(NOON + 2 * DAY_MS)
    assert (daily.total, daily.today, daily.yesterday) == (10, 10, 5)
    daily.turn(NOON + 9 * DAY_MS)  # a whole day without anything between
    assert (daily.today, daily.yesterday) == (10, 10)


def test_traffic_by_topic_and_group() -> None:
    traffic = Traffic()
    traffic.stored("T", 60, NOON)
    traffic.stored("U", 600, NOON)
    traffic.read("T", "g", 120, 9000, NOON)
    assert (traffic.puts.total, traffic.gets.total) == (660, 120)
    assert (traffic.put_tps("T", NOON), traffic.put_tps("V", NOON)) == (1, 0)
    assert (traffic.get_tps("T", "g", NOON), traffic.get_tps("T", "h", NOON)) == (2, 0)
    traffic.forget_topics(["U"])
    traffic.forget_group("g")
    traffic.read("U", "h", 60, 0, NOON)
    traffic.forget_topics(["U"])
    assert traffic.put_tps("U", NOON) == traffic.get_tps("T", "g", NOON) == traffic.get_tps("U", "h", NOON) == 0


def test_readers_that_are_counted_each_for_itself_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "MAX_READERS", 3)
    traffic = Traffic()
    for number in range(5):
        traffic.read("T", f"g{number}", 1, 10, 0)
    assert [group for (_, group), _ in traffic.gets_by_group()] == ["g2", "g3", "g4"]
    assert traffic.gets.total == 5
