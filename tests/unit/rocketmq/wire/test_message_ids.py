from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.wire.message_ids import (
    UniqueKeys,
    decode_host,
    decode_message_id,
    encode_host,
    encode_message_id,
    month_of,
)


def test_hosts_and_message_ids() -> None:
    for address, size in (("127.0.0.1", 32), ("::1", 56)):
        host = encode_host(address, 10911)
        assert decode_host(host) == (address, 10911)
        message_id = encode_message_id(host, 4242)
        assert len(message_id) == size
        assert decode_message_id(message_id) == (address, 10911, 4242)
    for bad in ("", "xyz", "7F", "0" * 30):
        with pytest.raises(UsageError):
            decode_message_id(bad)


def time_of(unique_key: str) -> int:
    """Ms since its month began, as ``MessageClientIDSetter.getNearlyTimeFromID`` reads it."""
    return int(unique_key[-12:-4], 16)


def test_a_clients_ids_differ_and_tell_when_they_were_made() -> None:
    keys, start = UniqueKeys(bytes([127, 0, 0, 1]), 70_000, 99), month_of(1_700_000_000_000)[0]
    made = [keys.next(start + 1_234_567) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {len(key) for key in made} == {32}
    assert {key[:20] for key in made} == {"7F0000011170" + "00000063"}
    assert time_of(made[0]) == time_of(made[-1]) == 1_234_567
    assert time_of(keys.next(start + 1_234_568)) == 1_234_568


def test_a_run_has_the_ids_that_would_come_one_by_one() -> None:
    keys, twin = UniqueKeys(b"\x7f\0\0\1", 1, 2), UniqueKeys(b"\x7f\0\0\1", 1, 2)
    now_ms = 1_700_000_000_000
    for count in (1, 2, 300, 65_530, 7, 70_000):  # the counter of 16 bits goes round
        start, ends = keys.run(now_ms, count)
        assert [(start + end).decode() for end in ends] == [twin.next(now_ms) for _ in range(count)]
        assert keys.next(now_ms + 1) == twin.next(now_ms + 1)
        now_ms += 31 * 86_400_000


def test_ids_go_on_through_months_and_after_49_days() -> None:
    """A broker that runs for long had times that only grew, and began at 0 again after 2^32 ms."""
    keys, now_ms = UniqueKeys(b"\x7f\0\0\1", 1, 2), month_of(1_700_000_000_000)[0] + 5
    began_ms, made = now_ms, set()
    while now_ms < began_ms + 400 * 86_400_000:
        start, end = month_of(now_ms)
        for moment in (now_ms, end - 1, end, end + 1):
            key = keys.next(moment)
            assert time_of(key) == moment - (start if moment < end else end)
            assert time_of(key) < 1 << 32
            made.add(key)
        now_ms = end + 86_400_000
    assert len(made) == 4 * 14


def test_a_clock_that_is_set_back_over_the_first_of_a_month_gives_no_times_in_the_far_future() -> None:
    keys, (start, end) = UniqueKeys(b"\x7f\0\0\1", 1, 2), month_of(1_700_000_000_000)
    assert time_of(keys.next(end + 10)) == 10
    assert time_of(keys.next(end - 10)) == end - 10 - start


def test_months() -> None:
    start, end = month_of(1_735_689_599_000)
    assert start < 1_735_689_599_000
    assert 28 * 86_400_000 <= end - start <= 31 * 86_400_000 + 3_600_000
    assert month_of(end)[0] == end
    assert month_of(end - 1) == (start, end)
