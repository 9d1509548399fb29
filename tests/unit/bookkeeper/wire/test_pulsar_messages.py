"""Messages in entries: there and back, in steps, and every damage named with the entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pulsar_entries import decode_entry, iter_entry
from tallystick.bookkeeper.wire import pulsar_messages as wire
from tallystick.bookkeeper.wire.compression import Compression, compress
from tallystick.bookkeeper.wire.pulsar_messages import Chunk, OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.streams_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata
from tallystick.codec.checksum import crc32c
from tallystick.errors import CorruptEntry, UsageError

HERE = Position(7, 3)
TIME = st.integers(0, 2**63)
MESSAGE = st.builds(
    OutMessage,
    st.binary(max_size=40),
    st.none() | st.text(max_size=9) | st.binary(max_size=9),
    st.none() | TIME,
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
)


def encode(*messages: OutMessage, sequence: int = 5, compression: Compression | None = None) -> bytes:
    return wire.encode_entry(messages, producer="p", sequence=sequence, publish_time_ms=1_000, compression=compression)


def decode(data: bytes) -> list[wire.InMessage]:
    return decode_entry(data, position=HERE, max_bytes=1 << 20)


def entry(payload: bytes = b"", *, crc: bool = True, **fields: Any) -> bytes:
    """An entry as somebody else may write it."""
    given_fields: dict[str, Any] = {"producer_name": "p", "sequence_id": 1, "publish_time": 2} | fields
    front = MessageMetadata(**given_fields).SerializePartialToString()
    body = len(front).to_bytes(4, "big") + front + payload
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body if crc else body


def batch(*singles: tuple[SingleMessageMetadata, bytes]) -> bytes:
    parts = []
    for single, data in singles:
        front = single.SerializePartialToString()
        parts.append(len(front).to_bytes(4, "big") + front + data)
    return b"".join(parts)


@given(
    st.lists(MESSAGE, min_size=1, max_size=5),
    st.text(max_size=9),
    st.integers(0, 2**62),
    TIME,
    st.none() | st.sampled_from(Compression),
)
def test_messages_come_back(
    messages: list[OutMessage], producer: str, sequence: int, publish_time: int, compression: Compression | None
) -> None:
    data = wire.encode_entry(
        messages, producer=producer, sequence=sequence, publish_time_ms=publish_time, compression=compression
    )
    found = decode(data)
    assert [OutMessage(each.data, each.key, each.event_time_ms, each.properties) for each in found] == messages
    assert [each.sequence for each in found] == list(range(sequence, sequence + len(messages)))
    is_batch = len(messages) > 1
    assert [each.position for each in found] == [Position(7, 3, at if is_batch else -1) for at in range(len(messages))]
    assert {(each.producer, each.publish_time_ms) for each in found} == {(producer, publish_time)}
    assert {each.batch_size for each in found} == {len(messages) if is_batch else 0}
    opened = wire.open_entry(memoryview(data), position=HERE)
    assert (opened.producer, opened.sequence, opened.last_sequence) == (producer, sequence, found[-1].sequence)
    assert (opened.publish_time_ms, opened.broker_time_ms, opened.count) == (publish_time, None, len(messages))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_a_corrupt_entry(data: bytes) -> None:
    for foreign in (data, entry(data, num_messages_in_batch=3), entry(data, compression=1, uncompressed_size=50)):
        try:
            decode(foreign)
        except CorruptEntry as error:
            assert error.position == HERE


@given(st.data(), st.lists(MESSAGE, min_size=1, max_size=3))
def test_damage_is_found(data: st.DataObject, messages: list[OutMessage]) -> None:
    damaged = bytearray(encode(*messages))
    at = data.draw(st.integers(2, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptEntry, match=r"CRC is wrong.*position=7:3"):
        decode(bytes(damaged))


def single(data: bytes, **fields: Any) -> tuple[SingleMessageMetadata, bytes]:
    return SingleMessageMetadata(payload_size=len(data), **fields), data


DAMAGED: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "it is cut off"),
    "a broker's notes alone": (b"\x0e\x02\x00\x00\x00\x00", "it is cut off"),
    "a magic number alone": (b"\x0e\x01\x00", "it is cut off"),
    "cut off": (encode(OutMessage(b""))[:-1], "CRC is wrong"),
    "metadata cut off": (b"\x00\x00\x00\x09\x0a\x01p", "cut off"),
    "no producer": (entry(producer_name=None), "fields are missing"),
    "metadata of megabytes": (entry(uuid="x" * (1 << 20)), "bytes of metadata"),
    "encrypted": (entry(encryption_keys=[b"\x0a\x01k"]), "encrypted"),
    "compressed by a newer client": (entry(compression=5), "way that this version does not know: 5"),
    "too long": (entry(compression=1, uncompressed_size=(1 << 20) + 1), "1048576 are the most"),
    "not compressed": (entry(b"hello", compression=3, uncompressed_size=5), "ZSTD does not decompress it"),
    "a batch of none": (entry(num_messages_in_batch=0), "batch of 0 messages"),
    "a batch of millions": (entry(num_messages_in_batch=1_000_001), "batch of 1000001 messages"),
    "fewer than the batch has": (entry(batch(single(b"1")), num_messages_in_batch=2), "it is cut off"),
    "a message cut off": (entry(batch(single(b"12"))[:-1], num_messages_in_batch=1), "message 0 .* not whole"),
    "a negative size": (
        entry(batch((SingleMessageMetadata(payload_size=-1), b"")), num_messages_in_batch=1), "not whole"
    ),
    "no size": (entry(batch((SingleMessageMetadata(), b"")), num_messages_in_batch=1), "not whole"),
    "a key of megabytes": (
        entry(batch(single(b"", partition_key="x" * (1 << 20))), num_messages_in_batch=1),
        "message 0 has more than",
    ),
    "chunk of another message": (entry(num_chunks_from_msg=2, chunk_id=2), "chunk 2 of 2"),
    "properties": (
        entry(properties=[{"key": f"{at:x}", "value": ""} for at in range(16_385)]), "more than 16384 properties"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_bytes_that_are_no_messages(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptEntry, match=rf"(?s)the bytes of this entry are no messages.*{reason}") as caught:
        decode(data)
    assert caught.value.position == HERE


def test_an_entry_of_an_old_client_has_no_crc() -> None:
    assert decode(entry(b"hello", crc=False))[0].data == b"hello"


def test_the_time_that_a_broker_noted() -> None:
    note = BrokerEntryMetadata(broker_timestamp=99, index=4).SerializeToString()
    data = b"\x0e\x02" + len(note).to_bytes(4, "big") + note + encode(OutMessage(b"x"))
    assert wire.open_entry(data, position=HERE).broker_time_ms == 99
    assert decode(data) == decode(encode(OutMessage(b"x")))


def test_a_marker_of_a_broker_has_no_messages() -> None:
    data = entry(b"hello", marker_type=10)
    assert wire.open_entry(data, position=HERE).count == 0
    assert decode(data) == []


def test_keys() -> None:
    def key(**fields: Any) -> str | bytes | None:
        return decode(entry(**fields))[0].key

    assert key() is None
    assert key(partition_key="") == ""
    assert key(partition_key="aGVsbG8=") == "aGVsbG8="
    assert key(partition_key="aGVsbG8=", partition_key_b64_encoded=True) == b"hello"
    assert key(partition_key="hello", partition_key_b64_encoded=True) == "hello"  # so it is none
    assert key(partition_key="x", null_partition_key=True) is None


def test_texts_that_are_not_utf_8_are_shown_as_java_shows_them() -> None:
    data = entry(partition_key="ab", properties=[{"key": "kk", "value": "v"}], crc=False)
    found = decode(data.replace(b"ab", b"\xff\xfe").replace(b"kk", b"k\xff"))[0]
    assert (found.key, found.properties) == ("\ufffd\ufffd", {"k\ufffd": "v"})


def test_the_key_of_a_batch_is_that_of_its_first_message() -> None:
    opened = wire.open_entry(encode(OutMessage(b"", "a"), OutMessage(b"", "b")), position=HERE)
    assert opened.metadata.partition_key == "a"


def test_what_a_batch_of_others_may_have() -> None:
    payload = batch(
        single(b"one", null_value=True, ordering_key=b"o"),
        single(b"gone", compacted_out=True),
        single(b"three", sequence_id=9, event_time=4),
    )
    found = decode(entry(payload + b"more", num_messages_in_batch=3, schema_version=b"s", partition_key="k"))
    assert [(each.position.batch_index, each.data, each.sequence) for each in found] == [
        (0, b"one", 1),
        (2, b"three", 9),
    ]
    assert [(each.is_null, each.ordering_key, each.event_time_ms) for each in found] == [
        (True, b"o", None), (False, b"", 4),
    ]  # fmt: skip
    assert {(each.batch_size, each.schema_version, each.key) for each in found} == {(3, b"s", None)}


def test_what_a_message_of_others_may_have() -> None:
    (found,) = decode(entry(b"", null_value=True, ordering_key=b"o", schema_version=b"s", event_time=0))
    assert (found.is_null, found.ordering_key, found.schema_version, found.event_time_ms) == (True, b"o", b"s", 0)
    (found,) = decode(entry(b""))
    assert (found.is_null, found.ordering_key, found.schema_version, found.event_time_ms) == (False, b"", b"", None)


def test_a_batch_of_one() -> None:
    found = decode(entry(batch(single(b"one")), num_messages_in_batch=1))
    assert [(each.position, each.batch_size) for each in found] == [(Position(7, 3, 0), 1)]


def test_the_last_number_of_a_batch_is_what_a_broker_takes_for_it() -> None:
    alone = batch(single(b"", sequence_id=1), single(b"", sequence_id=2))
    of_cpp = wire.open_entry(entry(alone, num_messages_in_batch=2), position=HERE)
    of_java = wire.open_entry(entry(alone, num_messages_in_batch=2, highest_sequence_id=2), position=HERE)
    assert (of_cpp.last_sequence, of_java.last_sequence) == (1, 2)
    wrong = wire.open_entry(entry(sequence_id=9, highest_sequence_id=3), position=HERE)
    assert wrong.last_sequence == 9


@pytest.mark.parametrize("compression", Compression)
def test_chunks(compression: Compression) -> None:
    whole = b"tally" * 100
    stored = compress(whole, compression)
    named: dict[str, Any] = {"uuid": "p-1", "num_chunks_from_msg": 2, "total_chunk_msg_size": len(stored)}
    if compression is not Compression.NONE:
        named |= {"compression": compression.value, "uncompressed_size": len(whole)}
    pieces = [decode(entry(part, chunk_id=at, **named))[0] for at, part in enumerate((stored[:9], stored[9:]))]
    assert [each.chunk for each in pieces] == [
        Chunk("p-1", at, 2, len(stored), compression, len(whole)) for at in range(2)
    ]
    chunk = pieces[0].chunk
    assert chunk is not None
    joined = b"".join(each.data for each in pieces)
    assert wire.plain_chunks([joined], chunk, position=HERE, max_bytes=500) == whole
    with pytest.raises(CorruptEntry, match="499 are the most"):
        wire.plain_chunks([joined], chunk, position=HERE, max_bytes=499)
    with pytest.raises(CorruptEntry, match="its chunks have 9 bytes"):
        wire.plain_chunks([stored[:9]], chunk, position=HERE, max_bytes=500)


def test_one_chunk_is_the_message() -> None:
    assert decode(entry(b"hello", num_chunks_from_msg=1, chunk_id=0, total_chunk_msg_size=5))[0].chunk is None


def test_a_long_batch_is_decoded_in_steps() -> None:
    count = 10_000
    data = encode(*[OutMessage(b"x", properties={"a": "b"})] * count)
    steps = list(iter_entry(data, position=HERE, max_bytes=1 << 20))
    assert [len(step) for step in steps] == [256] * 39 + [16]
    assert [each.position.batch_index for step in steps for each in step] == list(range(count))


def test_an_entry_has_only_so_many_properties() -> None:
    properties = [{"key": f"{at:x}", "value": ""} for at in range(16_000)]
    payload = batch(*[single(b"", properties=properties)] * 63)
    with pytest.raises(CorruptEntry, match="more than 1000000 messages and properties"):
        decode(entry(payload, num_messages_in_batch=63))


@pytest.mark.parametrize(
    "message",
    [
        OutMessage("text"),  # type: ignore[arg-type]
        OutMessage(b"", 7),  # type: ignore[arg-type]
        OutMessage(b"", event_time_ms=-1),
        OutMessage(b"", properties={"k": 7}),  # type: ignore[dict-item]
        OutMessage(b"", properties={f"{at}": "" for at in range(16_385)}),
        OutMessage(b"", "x" * (1 << 20)),
    ],
    ids=["data", "key", "time", "property", "properties", "long key"],
)
def test_what_an_entry_cannot_hold(message: OutMessage) -> None:
    for messages in ([message], [OutMessage(b""), message]):
        with pytest.raises(UsageError, match="the message cannot be stored"):
            encode(*messages)


def test_a_batch_that_nobody_could_read() -> None:
    with pytest.raises(UsageError, match="more than 1000000 messages and properties"):
        encode(*[OutMessage(b"")] * 1_000_001)
    with pytest.raises(UsageError, match="at least one message"):
        encode()
    with pytest.raises(UsageError, match="cannot be stored"):
        encode(OutMessage(b""), sequence=-1)


def test_the_greatest_batch_that_is_written_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_FIELDS", 5)
    assert len(decode(encode(*[OutMessage(b"")] * 5))) == 5
    with pytest.raises(UsageError, match="a batch has more than 5"):
        encode(*[OutMessage(b"")] * 6)


def test_the_longest_metadata_that_are_written_are_read() -> None:
    """Of the entry, or of a message of a batch."""
    for others in ([], [OutMessage(b"")]):
        length = next(
            length
            for length in range(wire.LONGEST_METADATA, 0, -1)
            if _is_written([*others, OutMessage(b"", event_time_ms=0, properties={"k": "x" * length})])
        )
        messages = [*others, OutMessage(b"", event_time_ms=0, properties={"k": "x" * length})]
        assert decode(encode(*messages))[-1].properties["k"] == "x" * length


def _is_written(messages: list[OutMessage]) -> bool:
    try:
        encode(*messages)
    except UsageError:
        return False
    return True


def test_what_is_too_long_when_it_is_decompressed_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 1_000)
    for messages in ([OutMessage(b"a" * 1_001)], [OutMessage(b"a" * 500)] * 2):
        with pytest.raises(UsageError, match="1000 are the most"):
            wire.encode_entry(messages, producer="p", sequence=0, publish_time_ms=0, compression=Compression.ZLIB)
    assert wire.encode_entry([OutMessage(b"a" * 1_001)], producer="p", sequence=0, publish_time_ms=0)
