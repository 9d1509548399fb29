"""Messages, properties and batches."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.records import encode_records, topic_field
from tallystick.errors import RemoteProtocolError, UsageError
from tallystick.rocketmq.wire.message_ids import UniqueKeys, encode_host
from tallystick.rocketmq.wire.record import (
    Message,
    decode_batch,
    decode_message,
    decode_messages,
    decode_properties,
    encode_batch,
    encode_plain_batch,
    encode_properties,
)

HOST = encode_host("127.0.0.1", 10911)


def record(body: bytes, sys_flag: int = 0, properties: bytes = b"") -> bytes:
    row = (topic_field("Topic"), 1, 2, sys_flag, 3, HOST, 4, [(5, body, properties)])
    return encode_records([row], 4096, 6, HOST)


def test_properties_as_the_original_reads_them() -> None:
    assert encode_properties({"KEYS": "a b", "TAGS": "t"}) == b"KEYS\x01a b\x02TAGS\x01t\x02"
    assert decode_properties(b"KEYS\x01a b\x02TAGS\x01t") == {"KEYS": "a b", "TAGS": "t"}
    assert decode_properties(b"a\x01\x02\x01b\x02c\x02d\x01e\x01f\x02\x02") == {"d": "e\x01f"}
    assert decode_properties("ä\x01ö\x02".encode()) == {"ä": "ö"}
    assert decode_properties(b"a\x01\xff\x02") == {"a": "\ufffd"}


def test_what_a_producer_gives_becomes_properties() -> None:
    message = Message("Topic", b"x", tags="t", keys=["a", "b"], properties={"p": "q"}, wait_stored=False)
    assert message.all_properties() == {"p": "q", "KEYS": "a b", "TAGS": "t", "WAIT": "false"}
    assert Message("Topic", b"x").all_properties() == {"WAIT": "true"}


PROPERTIES = st.dictionaries(st.sampled_from(["p", "ä", "WAIT", "TAGS"]), st.text(min_size=1, max_size=3))


@given(st.booleans(), st.none() | st.just("t"), st.lists(st.just("k"), max_size=2), PROPERTIES)
def test_an_id_is_the_last_of_the_properties(
    wait: bool, tags: str | None, keys: list[str], properties: dict[str, str]
) -> None:
    message = Message("Topic", b"x", tags, keys, properties, wait_stored=wait)
    expected = encode_properties(message.all_properties() | {"UNIQ_KEY": "id"})
    try:
        stored = message.encode_with_id("id")
    except UsageError:
        assert any(end in value for value in properties.values() for end in "\x01\x02")
        return
    assert stored.encode() == expected


@pytest.mark.rule("N7")
@pytest.mark.parametrize("value", ["v" * 32767, "ä" * 16384])
def test_properties_longer_than_a_record_can_hold(value: str) -> None:
    with pytest.raises(UsageError, match="too long"):
        Message("Topic", b"x", properties={"p": value}).encode_with_id("id")


def test_a_record_decoded() -> None:
    message = decode_message(record(b"body", properties=b"TAGS\x01t\x02KEYS\x01a b\x02UNIQ_KEY\x01id\x02"))
    assert (message.topic, message.queue_id, message.queue_offset, message.physical_offset) == ("Topic", 1, 2, 4096)
    assert (message.tags, message.keys, message.unique_key, message.body()) == ("t", ["a", "b"], "id", b"body")
    assert message.offset_id == "7F00000100002A9F0000000000001000"


def test_many_records_are_read_as_one_by_one() -> None:
    records = [record(b"1"), record(b"22", properties=b"TAGS\x01t\x02"), record(b"")]
    assert decode_messages(b"".join(records)) == [decode_message(each) for each in records]


def test_a_topic_that_is_no_text() -> None:
    data = record(b"body").replace(b"Topic", b"Top\xffc")
    for decode in (decode_messages, decode_message):
        with pytest.raises(RemoteProtocolError):
            decode(data)


def test_a_message_is_shown_without_its_body() -> None:
    assert repr(decode_message(record(b"body"))) == "Topic:1:2, 100 bytes at 4096"


@pytest.mark.rule("N11")
@pytest.mark.parametrize("sys_flag", [0, 1])
def test_n11_a_body_that_does_not_match_its_checksum_is_no_message(sys_flag: int) -> None:
    body = zlib.compress(b"x" * 99) if sys_flag else b"a body"
    data = record(body, sys_flag)
    at = data.index(body)
    for place in range(at, at + len(body)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        (message,) = decode_messages(bytes(damaged))
        with pytest.raises(RemoteProtocolError, match="does not match its checksum"):
            message.body()


def test_compressed_bodies() -> None:
    packed = zlib.compress(b"body")
    assert decode_message(record(packed, 1)).body() == decode_message(record(packed, 0x301)).body() == b"body"
    for flag, name in ((0x101, "LZ4"), (0x201, "ZSTD"), (0x401, "unknown")):
        with pytest.raises(UsageError, match=f"only zlib.*{name}"):
            decode_message(record(packed, flag)).body()
    for damaged in (b"no zlib", b"", packed[:-5], packed[:-1]):
        with pytest.raises(RemoteProtocolError, match="damaged"):
            decode_message(record(damaged, 1)).body()


@pytest.mark.rule("N7")
def test_a_compressed_body_does_not_grow_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.rocketmq.wire.record.MAX_BODY_BYTES", 10_000)
    assert decode_message(record(zlib.compress(bytes(10_000)), 1)).body() == bytes(10_000)
    for size in (10_001, 1_000_000):
        with pytest.raises(RemoteProtocolError, match="longer"):
            decode_message(record(zlib.compress(bytes(size)), 1)).body()


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_noise_is_no_record_and_no_batch(noise: bytes) -> None:
    for decode in (decode_messages, decode_batch):
        try:
            decode(noise)
        except RemoteProtocolError:
            continue
        assert decode is decode_messages
        assert noise == b""


@pytest.mark.rule("N6")
def test_every_cut_of_a_record_and_of_a_batch_is_refused() -> None:
    whole, batch = (
        record(b"body", properties=b"a\x01b\x02"),
        encode_batch([(7, b"one", b"a\x01b\x02"), (8, b"two", b"")]),
    )
    assert decode_batch(batch) == [(7, b"one", b"a\x01b\x02"), (8, b"two", b"")]
    for cut in range(1, len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_messages(whole[:cut])
    for cut in range(len(batch)):
        if cut != len(encode_batch([(7, b"one", b"a\x01b\x02")])):
            with pytest.raises(RemoteProtocolError):
                decode_batch(batch[:cut])


@given(
    st.lists(st.binary(min_size=1, max_size=40) | st.just(bytes(300)), min_size=1, max_size=40), st.integers(0, 65535)
)
def test_members_that_have_nothing_but_a_body_are_encoded_as_any(bodies: list[bytes], before: int) -> None:
    keys, twins = UniqueKeys(HOST, 1, 2), UniqueKeys(HOST, 1, 2)
    for ids in (keys, twins):
        ids.run(5, before + 1)
    start, ends = keys.run(5, len(bodies))
    members = [(0, body, Message("T", body).encode_with_id(twins.next(5)).encode()) for body in bodies]
    assert encode_plain_batch(bodies, start, ends) == encode_batch(members)
