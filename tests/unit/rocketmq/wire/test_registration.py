"""Registrations of brokers, plain and compressed."""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.steps import finished
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire import registration as registration_module
from tallystick.rocketmq.wire import split as split_module
from tallystick.rocketmq.wire.bodies import TopicTableResponse
from tallystick.rocketmq.wire.registration import (
    MAX_ENTRIES,
    MAX_PART_BYTES,
    MAX_PLAIN_BYTES,
    Registration,
    body_crc,
    decode_registration,
    encode_registration,
)
from tallystick.rocketmq.wire.values import FIRST_MAPPING_VERSION, VERSION, DataVersion, TopicConfig

TOKEN = split_module._TOKEN
NAMES = st.text("abcXYZ%_-0", min_size=1, max_size=10)
TOPICS = st.builds(
    TopicConfig,
    name=NAMES,
    read_queues=st.integers(0, 2**31 - 1),
    write_queues=st.integers(0, 2**31 - 1),
    perm=st.integers(0, 7),
    filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    attributes=st.dictionaries(NAMES, st.text(st.characters(codec="utf-8"), max_size=10), max_size=3),
)


def decode_all(body: bytes, *, compressed: bool, version: int) -> Registration:
    return finished(decode_registration(body, compressed=compressed, version=version))


def registration(*topics: TopicConfig, mappings: dict[str, object] | None = None) -> Registration:
    table = TopicTableResponse(
        version=DataVersion(1, 2, 3), topics={topic.name: topic for topic in topics}, mapping_infos=mappings or {}
    )
    return Registration(table, ["127.0.0.1:1"])


@settings(max_examples=60)
@given(st.lists(TOPICS, max_size=4), st.booleans())
def test_what_is_written_is_read_again(topics: list[TopicConfig], compressed: bool) -> None:
    sent = registration(*topics, mappings={"T": {"topic": "T", "totalQueues": 4}})
    body = encode_registration(sent, compressed=compressed)
    assert decode_all(body, compressed=compressed, version=VERSION) == sent


def test_a_compressed_topic_is_one_line_of_text() -> None:
    topic = TopicConfig("T", 4, 8, 6, attributes={"+a": "b c"})
    plain = zlib.decompress(encode_registration(registration(topic), compressed=True))
    assert b'T 4 8 6 SINGLE_TAG {"+a":"b c"}' in plain


def test_an_older_broker_sends_no_mappings() -> None:
    plain = zlib.decompress(encode_registration(registration(TopicConfig("T")), compressed=True))
    older = zlib.compress(plain[:-4])
    found = decode_all(older, compressed=True, version=FIRST_MAPPING_VERSION - 1)
    assert list(found.table.topics) == ["T"]
    with pytest.raises(RemoteProtocolError):
        decode_all(older, compressed=True, version=FIRST_MAPPING_VERSION)


def assert_written_again(taken: Registration) -> None:
    assert decode_all(encode_registration(taken), compressed=False, version=VERSION) == taken


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_random_compressed_bytes_are_registrations_or_refused(plain: bytes) -> None:
    for body in (plain, zlib.compress(plain)):
        with suppress(RemoteProtocolError):
            assert_written_again(decode_all(body, compressed=True, version=VERSION))


@settings(max_examples=60)
@given(st.data())
def test_one_wrong_byte_inside_is_another_registration_or_refused(data: st.DataObject) -> None:
    plain = bytearray(zlib.decompress(encode_registration(registration(TopicConfig("T")), compressed=True)))
    plain[data.draw(st.integers(0, len(plain) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(RemoteProtocolError):
        assert_written_again(decode_all(zlib.compress(plain), compressed=True, version=VERSION))


def test_a_small_body_that_swells_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="too large"):
        decode_all(zlib.compress(bytes(MAX_PLAIN_BYTES + 1)), compressed=True, version=VERSION)


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_impossible_counts_are_refused(count: int) -> None:
    body = zlib.compress(struct.pack(">i", 2) + b"{}" + struct.pack(">i", count))
    with pytest.raises(RemoteProtocolError, match="impossible count"):
        decode_all(body, compressed=True, version=VERSION)


def test_the_check_sum_has_no_sign() -> None:
    assert body_crc(b"") == 0
    assert 0 <= body_crc(b"\x00" * 9) == zlib.crc32(b"\x00" * 9) & 0x7FFFFFFF


def plain_body(count: int, topic: bytes, infos: bytes = bytes(4)) -> bytes:
    parts = [struct.pack(">i", 2), b"{}", struct.pack(">i", count), (struct.pack(">i", len(topic)) + topic) * count]
    return zlib.compress(b"".join([*parts, struct.pack(">i", 2), b"[]", infos]))


def test_a_small_body_that_stands_for_very_many_topics_is_refused() -> None:
    """Sixteen KB took the name server seconds."""
    body = plain_body(MAX_ENTRIES + 1, b"T 1 1 6 SINGLE_TAG ")
    assert len(body) < 16 * 1024
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_ENTRIES} topics"):
        decode_all(body, compressed=True, version=VERSION)


def test_a_small_body_that_stands_for_very_many_values_is_refused() -> None:
    infos = struct.pack(">i", 10) + (struct.pack(">i", 50_001) + b"[" + b"1," * 25_000) * 10
    for body in (plain_body(2000, b'T 1 1 6 SINGLE_TAG {%s"b":"c"}' % (b'"a":"b",' * 100)), plain_body(0, b"", infos)):
        with pytest.raises(RemoteProtocolError, match="a text is too large"):
            decode_all(body, compressed=True, version=VERSION)


@pytest.mark.parametrize("number", ["9" * 4000, str(2**31), "x"])
def test_a_number_of_queues_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(RemoteProtocolError, match="a compressed registration is broken"):
        decode_all(plain_body(1, f"T {number} 1 6 SINGLE_TAG ".encode()), compressed=True, version=VERSION)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_long_registration_is_read_in_steps(compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """30,000 topics were a turn of the loop of 60 ms, compressed 180 ms."""
    topics = [TopicConfig(f"Topic{number:05}", attributes={"a": "b"} if number % 2 else {}) for number in range(1000)]
    sent = registration(*topics, mappings={f"T{n}": {"topic": f"T{n}", "currIdMap": {"0": n}} for n in range(100)})
    body = encode_registration(sent, compressed=compressed)
    monkeypatch.setattr(registration_module, "WHOLE_BYTES", 0)
    assert len(list(decode_registration(body, compressed=compressed, version=VERSION))) >= 10
    assert decode_all(body, compressed=compressed, version=VERSION) == sent


def test_a_registration_of_the_original_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its integer keys are bare, its members in another order."""
    body = (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,'
        b'"timestamp":5},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":7},'
        b'"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":8,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}},'
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"S":{"currIdMap":{0:0,1:1},"topic":"S"}}}}'
    )
    found = decode_all(body, compressed=False, version=VERSION)
    monkeypatch.setattr(registration_module, "WHOLE_BYTES", 0)
    assert decode_all(body, compressed=False, version=VERSION) == found
    assert found.table.version == DataVersion(0, 5, 3)
    assert found.table.topics == {"T": TopicConfig("T", 8, 8, 6)}
    assert found.table.mapping_infos == {"S": {"currIdMap": {"0": 0, "1": 1}, "topic": "S"}}


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"topicConfigSerializeWrapper":{}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1}}}',
        b"[]",
        b"",
        b"{",
    ],
)
def test_half_a_registration_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_all(body, compressed=False, version=VERSION)


def test_what_could_not_be_read_in_short_steps_is_refused() -> None:
    text = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":%s}}}'
    for value, why in ((b"[%s1]" % (b"1," * MAX_PART_BYTES), "an entry"), (b'"%s"' % (b"\\n" * 100_001), "escapes")):
        with pytest.raises(RemoteProtocolError, match=why):
            decode_all(text % value, compressed=False, version=VERSION)


@pytest.mark.parametrize(
    "more", [b"x" * MAX_PART_BYTES, b"x" * 60_000 + b'\\"', b"x" * 160 + b'\\"', b" " * 60_000 + b"1"]
)
@pytest.mark.parametrize("quote", [b'"', b"'", b""])
def test_the_end_of_a_string_is_searched_in_few_bytes(
    more: bytes, quote: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search for where a string of 16 MiB ends was 200 ms in one step, with an escaped quote in each 60 KB, too."""
    windows = list[int]()

    class Tokens:
        def match(self, text: bytes, at: int, end: int) -> re.Match[bytes] | None:
            windows.append(min(end, len(text)) - at)
            return TOKEN.match(text, at, end)

    monkeypatch.setattr(split_module, "_TOKEN", Tokens())
    for at in (0, 5, MAX_PART_BYTES):
        for end in (b"", quote + b"}"):
            body = b'{"%s":%s%s%s' % (b"n" * at, quote, more * (32 * MAX_PART_BYTES // len(more)), end)
            with pytest.raises(RemoteProtocolError):
                decode_all(body, compressed=False, version=VERSION)
    assert len(windows) and max(windows) <= 2 * MAX_PART_BYTES


LOOSE = b"T 1 1 6 SINGLE_TAG {" + b",".join(b"'k%d':'v'" % number for number in range(1200)) + b"}"


@pytest.mark.parametrize(
    "body",
    [
        plain_body(100, LOOSE),
        plain_body(0, b"", struct.pack(">i", 1) + struct.pack(">i", 14) + b"{'topic':'T',}"),
        plain_body(1, b'T 1 1 6 SINGLE_TAG {"a":"%s"}' % (b"v" * MAX_PART_BYTES)),
    ],
)
def test_entries_of_a_compressed_registration_are_short_and_strict(body: bytes) -> None:
    """21 KB of 100 topics with 1,200 attributes in single quotes were 0.7 s in one step."""
    assert len(body) < 32 * 1024
    with pytest.raises(RemoteProtocolError):
        decode_all(body, compressed=True, version=VERSION)


def test_long_entries_of_a_compressed_registration_are_steps_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    read, most = [0], MAX_PART_BYTES - 100
    read_topic = registration_module._read_topic

    def counted(text: str) -> TopicConfig:
        read[-1] += len(text)
        return read_topic(text)

    monkeypatch.setattr(registration_module, "_read_topic", counted)
    for _ in decode_registration(
        plain_body(100, b'T 1 1 6 SINGLE_TAG {"a":"%s"}' % (b"v" * (most - 100))), compressed=True, version=VERSION
    ):
        read.append(0)
    assert sum(read) > 90 * most and max(read) < registration_module.STEP_BYTES + most


@pytest.mark.parametrize("compressed", [False, True])
def test_the_bounds_of_a_long_registration_are_checked_in_steps(
    compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = list[int]()

    def counted(piece: bytes) -> int:
        pieces.append(len(piece))
        return 0

    monkeypatch.setattr(dialect, "count_values", counted)
    body = b" " * (8 * registration_module.CHECKED_BYTES)
    with pytest.raises(RemoteProtocolError):
        decode_all(zlib.compress(body) if compressed else body, compressed=compressed, version=VERSION)
    assert len(pieces) >= 8 and max(pieces[:8]) == registration_module.CHECKED_BYTES
