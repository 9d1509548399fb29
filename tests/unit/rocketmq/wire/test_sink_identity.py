"""The identity of a message of a sink, as its properties have it."""

from __future__ import annotations

import pytest

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.sink_identity import (
    SINK,
    SINK_MARK,
    SinkIdentity,
    identity_of,
    identity_suffix,
    without_identity,
)

IDENTITY = SinkIdentity("app", "q", 1, 3, 2, 7, 0xAB, "b0,b1")


def test_an_identity_is_read_wherever_it_stands() -> None:
    mark = f"{SINK}\x01{IDENTITY.text}\x02"
    for properties in (mark, f"KEYS\x01a\x02{mark}", f"{mark}KEYS\x01a\x02", mark.rstrip("\x02")):
        assert identity_of(properties.encode()) == IDENTITY
        assert identity_of(without_identity(properties.encode())) is None


def test_another_property_whose_name_ends_alike_is_none() -> None:
    """Anybody may send that."""
    assert identity_of(f"MY_{SINK}\x01{IDENTITY.text}\x02".encode()) is None


def test_identities_of_a_partition_have_one_size_and_older_ones_are_read() -> None:
    first, last = identity_suffix(0, 1, "b"), identity_suffix(2**31, 0xFFFFFFFF, "b")
    assert len(first) == len(last)
    older = identity_of(SINK_MARK + b"app query 7 2 1 41 0000002a b\x02")
    assert older is not None and older.sequence == 41
    assert identity_of(SINK_MARK + older.text.encode()) == older


@pytest.mark.parametrize("text", ["a q 0 1 1 0 0 b", "a q 0 1 0 0 100000000 b", "a q 0 0 0 0 0 b", "a q 0 1 0 0 x b"])
def test_what_no_sink_sends_is_none(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        identity_of(f"{SINK}\x01{text}".encode())
    assert identity_of(f"{SINK}\x01a q 0 1 0 0 ffffffff b".encode()) is not None
