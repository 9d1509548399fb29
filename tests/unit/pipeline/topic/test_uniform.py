"""Records that are read by columns are read as any are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.codec.pulled import scan_pulled
from tallystick.codec.records import BORN_V6, Row, encode_records, topic_field
from tallystick.pipeline.topic.arrow import SCHEMA, arrays_of
from tallystick.pipeline.topic.brokers import Pulled
from tallystick.pipeline.topic.uniform import UniformRun, scan_uniform
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import encode_properties
from tallystick.rocketmq.wire.values import MessageQueue

V4, V6 = encode_host("10.1.2.3", 5), encode_host("::1", 70_000)
QUEUE = MessageQueue("T", "b", 3)


def record(body: bytes = b"body", host: bytes = V4, topic: str = "T", properties: bytes = b"", at: int = 0) -> bytes:
    row: Row = topic_field(topic), 3, 17 + at, 0, 5 + at, host, 2, [(7, body, properties)]
    return encode_records([row], at << 10, 9, V4)


def rows_of(*pulls: Pulled) -> list[dict[str, object]]:
    arrays = arrays_of(pulls, SCHEMA.names, decode=True)
    for array in arrays:
        array.validate(full=True)
    rows: list[dict[str, object]] = pa.Table.from_arrays(arrays, schema=SCHEMA).to_pylist()
    return rows


def assert_rows_alike(uniform: UniformRun, buffer: bytes) -> None:
    """Alone, behind another pull of the kind, and behind one that is read in the other way."""
    by_columns, plain = (Pulled(QUEUE, run, len(buffer)) for run in (uniform, scan_pulled(buffer)))
    assert len(uniform) == len(plain.run) and uniform.end == plain.run.end == len(buffer)
    rows = rows_of(plain)
    assert rows_of(by_columns) == rows
    assert rows_of(by_columns, by_columns) == rows_of(plain, by_columns) == rows_of(by_columns, plain) == rows * 2


records = st.builds(
    record,
    st.binary(max_size=40),
    st.sampled_from([V4, V6]),
    st.sampled_from(["T", "x" * 127, "y" * 200]),
    st.sampled_from([b"", encode_properties({"TAGS": "a"}), encode_properties({"UNIQ_KEY": "\u00e4"})]),
    st.integers(0, 50),
)


@given(st.lists(records, max_size=6), st.integers(0, 6), st.data())
def test_uniform_records_are_read_as_any_are(stored: list[bytes], repeated: int, data: st.DataObject) -> None:
    buffer = bytearray(b"".join(stored + stored[:1] * repeated))
    if buffer and data.draw(st.booleans()):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    uniform = scan_uniform(bytes(buffer))
    if uniform is not None:
        assert_rows_alike(uniform, bytes(buffer))


@pytest.mark.parametrize("count", [4, 10, 40])
@pytest.mark.parametrize("body_size", [0, 4, 3000])
def test_what_one_producer_sent_is_uniform(count: int, body_size: int) -> None:
    texts = [encode_properties({"KEYS": f"k{at:03}", "UNIQ_KEY": f"U{at:03}", "TAGS": "t"}) for at in range(count)]
    stored = [record(bytes((at,)) * body_size, properties=text, at=at) for at, text in enumerate(texts)]
    uniform = scan_uniform(b"".join(stored))
    assert uniform is not None
    assert_rows_alike(uniform, b"".join(stored))


def test_what_is_not_uniform() -> None:
    stored = [record(at=at) for at in range(10)]
    buffer = bytearray(b"".join(stored))
    assert scan_uniform(bytes(buffer)) is not None
    assert scan_uniform(bytes(buffer[:-1])) is None
    assert scan_uniform(b"".join(stored[:3])) is None
    size = len(stored[0])
    for at, change in ((88, 1), (5 * size + 88, 1), (9 * size + 3, 1), (2 * size + 92, 1), (39, BORN_V6)):
        damaged = bytearray(buffer)  # a body of the first record or another, a size, a topic's size, other parts
        damaged[at] ^= change
        assert scan_uniform(bytes(damaged)) is None, at
