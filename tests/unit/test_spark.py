"""What Spark's queries are given beside its session."""

from __future__ import annotations

import pytest

from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import CorruptEntry
from tallystick.spark import messages_of


def entry_of(*data: bytes) -> bytes:
    return encode_entry([OutMessage(each) for each in data], producer="p", sequence=0, publish_time_ms=1)


def test_an_entry_of_a_stream_has_its_messages() -> None:
    assert messages_of(3, 7, entry_of(b"a")) == [b"a"]
    assert messages_of(3, 7, entry_of(b"a", b"", b"c" * 1000)) == [b"a", b"", b"c" * 1000]


def test_a_damaged_entry_says_where_it_is() -> None:
    damaged = bytearray(entry_of(b"a"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptEntry) as corrupt:
        messages_of(3, 7, bytes(damaged))
    assert corrupt.value.position == Position(3, 7)
