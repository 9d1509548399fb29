from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.wire.message_ids import (
    UniqueKeys,
    decode_host,
    decode_message_id,
    encode_host,
    encode_message_id,
    unique_key_time,
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


def test_a_clients_ids_differ_and_tell_when_they_were_made() -> None:
    keys = UniqueKeys(bytes([127, 0, 0, 1]), 70_000, 99, month_start_ms=1_000_000)
    made = [keys.next(1_234_567) for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {len(key) for key in made} == {32}
    assert unique_key_time(made[0], 1_000_000) == unique_key_time(made[-1], 1_000_000) == 1_234_567
    assert unique_key_time(keys.next(1_234_568), 1_000_000) == 1_234_568
    assert unique_key_time("no id", 0) is None
    assert unique_key_time("x" * 32, 0) is None
