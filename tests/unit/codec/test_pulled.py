from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.pulled import scan_pulled
from tallystick.codec.records import Row, encode_records, topic_field
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import StoredMessage, decode_message, encode_properties

V4, V6 = encode_host("10.1.2.3", 5), encode_host("::1", 70_000)


@dataclass(frozen=True)
class Place:
    """Where a broker has stored something."""

    physical: int
    host: bytes


def row(body: bytes = b"body", host: bytes = V4, topic: str = "T", properties: bytes = b"") -> Row:
    return topic_field(topic), 3, 17, 0, 5, host, 2, [(7, body, properties)]


def pulled(rows: list[tuple[Row, Place]]) -> bytes:
    return b"".join(encode_records([each], place.physical, 9, place.host) for each, place in rows)


def one_by_one(buffer: bytes) -> list[StoredMessage]:
    position, messages = 0, []
    while position < len(buffer):
        messages.append(decode_message(buffer, position))
        position += messages[-1].size
    return messages


rows = st.builds(
    row,
    st.binary(max_size=40),
    st.sampled_from([V4, V6]),
    st.sampled_from(["T", "x" * 127, "y" * 200]),
    st.sampled_from([b"", encode_properties({"TAGS": "a"})]),
)
places = st.builds(Place, st.integers(0, 1 << 60), st.sampled_from([V4, V6]))


@given(st.lists(st.tuples(rows, places), max_size=6))
def test_columns_are_what_single_records_say(stored: list[tuple[Row, Place]]) -> None:
    buffer = pulled(stored)
    run, messages = scan_pulled(buffer), one_by_one(buffer)
    assert run.end == len(buffer) and len(run) == len(messages)
    assert list(map(bytes, run.bodies)) == [m.stored_body for m in messages]
    assert run.properties == [m.stored_properties for m in messages]
    assert [topic.decode() for topic in run.topics] == [m.topic for m in messages]
    assert run.sizes == [m.size for m in messages]
    assert run.body_crcs == [m.body_crc for m in messages]
    assert run.queue_ids == [m.queue_id for m in messages]
    assert run.prepared_offsets == [m.prepared_offset for m in messages]
    assert run.flags == [m.flag for m in messages]
    assert run.queue_offsets == [m.queue_offset for m in messages]
    assert run.physical_offsets == [m.physical_offset for m in messages]
    assert run.sys_flags == [m.sys_flag for m in messages]
    assert run.born_timestamps == [m.born_timestamp for m in messages]
    assert run.born_hosts == [m.born_host for m in messages]
    assert run.store_timestamps == [m.store_timestamp for m in messages]
    assert run.store_hosts == [m.store_host for m in messages]
    assert run.reconsume_times == [m.reconsume_times for m in messages]


def test_it_ends_before_a_record_that_is_not_whole() -> None:
    buffer = pulled([(row(), Place(0, V4)), (row(b"second"), Place(900, V4))])
    first = len(encode_records([row()], 0, 9, V4))
    for cut in range(first, len(buffer)):
        assert (scan_pulled(buffer[:cut]).end, len(scan_pulled(buffer[:cut]))) == (first, 1)


def test_a_body_that_does_not_match_its_checksum_is_no_record() -> None:
    buffer = bytearray(pulled([(row(), Place(0, V4)), (row(b"second"), Place(900, V4))]))
    buffer[buffer.index(b"second")] ^= 1
    assert len(scan_pulled(bytes(buffer))) == 1
    assert len(scan_pulled(bytes(buffer), verify=False)) == 2


@given(st.binary(max_size=300))
def test_garbage_is_no_record(garbage: bytes) -> None:
    assert scan_pulled(garbage).end == 0


@given(st.data())
def test_lying_lengths_end_the_run(data: st.DataObject) -> None:
    buffer = bytearray(pulled([(row(properties=b"a\x01b\x02"), Place(5, V4)), (row(host=V6), Place(6, V6))]))
    at = data.draw(st.integers(0, len(buffer) - 1))
    buffer[at] = data.draw(st.integers(0, 255))
    run = scan_pulled(bytes(buffer))
    assert 0 <= run.end <= len(buffer)


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_nothing(count: int) -> None:
    assert scan_pulled(b"\0" * count).end == 0
