from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.ha import (
    HEAD,
    REPORT,
    MasterHello,
    SlaveHello,
    Span,
    decode_master_hello,
    decode_slave_hello,
)

OFFSETS = st.integers(0, (1 << 63) - 1)


@given(OFFSETS, OFFSETS, st.booleans(), st.none() | st.text(max_size=50))
def test_a_masters_hello_round_trips(one: int, other: int, sync: bool, refused: str | None) -> None:
    hello = MasterHello(min(one, other), max(one, other), one, sync, refused)
    frame = hello.encode()
    assert HEAD.unpack_from(frame) == (-1, len(frame) - HEAD.size)
    assert decode_master_hello(frame[HEAD.size :]) == hello


@given(
    st.text(min_size=1, max_size=255),
    OFFSETS,
    OFFSETS,
    st.none() | OFFSETS,
    st.booleans(),
    st.lists(st.builds(Span, OFFSETS, OFFSETS, st.integers(0, (1 << 32) - 1)), max_size=8).map(tuple),
)
def test_a_slaves_hello_round_trips_in_whole_units(
    name: str, first: int, end: int, start: int | None, sync: bool, spans: tuple[Span, ...]
) -> None:
    hello = SlaveHello(name, first, end, start, sync, spans)
    data = hello.encode()
    assert len(data) % REPORT.size == 0
    assert REPORT.unpack_from(data)[0] == -2
    assert REPORT.unpack_from(data, 8)[0] == len(data) - 16
    assert decode_slave_hello(data[16:]) == hello


def test_what_a_later_version_adds_is_no_matter() -> None:
    assert decode_master_hello(b'{"first":1,"end":2,"flushed":0,"colour":"red"}') == MasterHello(1, 2, 0)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xff", b'{"first":3,"end":2,"flushed":0}', b'{"first":0,"end":1e3,"flushed":-1}']
)
def test_a_masters_hello_that_is_none(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_master_hello(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[" * 5000,
        b'{"slave_id":"","first":0,"end":0,"start":0}',
        b'{"slave_id":"a","first":0,"end":-1,"start":0}',
        b'{"slave_id":"a","first":0,"end":0,"start":-2}',
        b'{"slave_id":"a","first":0,"end":0,"start":0,"spans":[{"offset":-1,"size":1,"crc":0}]}',
        b'{"slave_id":"a","first":0,"end":0,"start":0,"spans":[{"offset":0,"size":9223372036854775808,"crc":0}]}',
        b'{"slave_id":"' + b"a" * 256 + b'","first":0,"end":0,"start":0}',
    ],
)
def test_a_slaves_hello_that_is_none(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_slave_hello(body)
