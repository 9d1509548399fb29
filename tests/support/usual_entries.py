"""Entries of streams as producers write them, and as one might."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata, SingleMessageMetadata
from tallystick.codec.checksum import crc32c


def entry_of(payload: bytes = b"v", **fields: Any) -> bytes:
    metadata = MessageMetadata(**{"producer_name": "p", "sequence_id": 3, "publish_time": 4, **fields})
    return sealed(metadata.SerializePartialToString(), payload)


def sealed(front: bytes, payload: bytes) -> bytes:
    body = len(front).to_bytes(4, "big") + front + payload
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body


def single(payload: bytes, **fields: Any) -> bytes:
    front = SingleMessageMetadata(**{"payload_size": len(payload), **fields}).SerializePartialToString()
    return len(front).to_bytes(4, "big") + front + payload


TEXT = st.text(max_size=5)
MESSAGE = st.builds(
    OutMessage,
    st.binary(max_size=20),
    st.none() | TEXT | st.binary(max_size=5),
    st.none() | st.integers(0, (1 << 63) - 1),
    st.dictionaries(TEXT, TEXT, max_size=3),
)
ENTRIES = st.builds(
    lambda messages, producer, sequence, time, how: encode_entry(
        messages, producer=producer, sequence=sequence, publish_time_ms=time, compression=how
    ),
    st.lists(MESSAGE, min_size=1, max_size=5),
    st.text(min_size=1, max_size=5),
    st.integers(0, 1 << 40),
    st.integers(1, 1 << 42),
    st.sampled_from([Compression.NONE, Compression.ZLIB, Compression.LZ4]),
)
