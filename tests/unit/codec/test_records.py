"""Runs of CommitLog records: a dumb twin decodes what was encoded; damage of any byte is found or harmless."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.records import (
    BLANK,
    FIXED_BYTES,
    Content,
    Row,
    Stop,
    encode_blank,
    encode_records,
    hash_latin,
    hash_texts,
    java_hash,
    java_hashes,
    scan_records,
    signed,
    topic_field,
)

HOSTS = st.sampled_from([bytes(range(8)), bytes(range(20))])
TOPICS = st.sampled_from(["T", "Topic", "a" * 127, "b" * 128, "%RETRY%" + "c" * 240, "Füße"])
CONTENTS = st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=200), st.binary(max_size=60))
ROWS = st.lists(
    st.tuples(
        TOPICS.map(topic_field),
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 50),
        st.sampled_from([0, 1, 2, 8, 0x301]),
        st.integers(0, 1 << 44),
        HOSTS,
        st.integers(0, 99),
        st.lists(CONTENTS, max_size=4),
    ),
    max_size=6,
)


def single(topic: bytes, queue_offset: int, body: bytes, properties: bytes) -> Row:
    return topic, 3, queue_offset, 0, 1, bytes(8), 0, [(0, body, properties)]


def messages_of(rows: list[Row]) -> list[tuple[Row, int, Content]]:
    """Each with its row and its queue offset."""
    return [(row, row[2] + number, content) for row in rows for number, content in enumerate(row[7])]


def twin_encode(rows: list[Row], offset: int, stored: int, store_host: bytes) -> bytes:
    """One field after another."""
    log = b""
    for row, first, (flag, body, properties) in messages_of(rows):
        topic, queue_id, _, sys_flag, born, born_host, reconsumed, _ = row
        queue_offset, sys_flag = first, sys_flag | (16 if len(born_host) == 20 else 0)
        sys_flag |= 32 if len(store_host) == 20 else 0
        fields = struct.pack(
            ">IiiqqiQ", zlib.crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, offset + len(log), sys_flag, born
        )
        fields += born_host + struct.pack(">Q", stored) + store_host + struct.pack(">iq", reconsumed, 0)
        fields += struct.pack(">I", len(body)) + body + topic + struct.pack(">H", len(properties)) + properties
        magic = 0xDAA320A7 if len(topic) <= 128 else 0xDAA320AB
        log += struct.pack(">II", len(fields) + 8, magic) + fields
    return log


@settings(max_examples=40)
@given(ROWS, st.integers(0, 1 << 40), HOSTS)
def test_encode_and_scan_equal_their_twin(rows: list[Row], offset: int, store_host: bytes) -> None:
    log = encode_records(rows, offset, 1_700_000_000_000, store_host)
    assert log == twin_encode(rows, offset, 1_700_000_000_000, store_host)
    run = scan_records(log, offset, verify=True)
    messages = messages_of(rows)
    assert (run.stop, run.end, len(run)) == (Stop.END, len(log), len(messages))
    assert run.queue_ids == [row[1] for row, _, _ in messages]
    assert run.queue_offsets == [queue_offset for _, queue_offset, _ in messages]
    assert [flag & ~48 for flag in run.sys_flags] == [row[3] for row, _, _ in messages]
    assert run.store_timestamps == [1_700_000_000_000] * len(messages)
    assert run.topics == [row[0][1 if row[0][0] else 2 :] for row, _, _ in messages]
    assert run.properties == [properties for _, _, (_, _, properties) in messages]
    assert run.sizes == [
        FIXED_BYTES + len(row[0]) + len(body) + len(properties) + len(row[5]) + len(store_host)
        for row, _, (_, body, properties) in messages
    ]


@settings(max_examples=40)
@given(ROWS.filter(bool), HOSTS, st.data())
def test_a_cut_run_ends_with_the_last_whole_record(rows: list[Row], store_host: bytes, data: st.DataObject) -> None:
    log = encode_records(rows, 0, 1, store_host)
    cut = data.draw(st.integers(0, len(log)))
    run = scan_records(log[:cut], 0)
    whole = scan_records(log, 0)
    ends = [at + size for at, size in zip(whole.positions, whole.sizes, strict=True)]
    assert run.end == max((end for end in ends if end <= cut), default=0)
    assert run.stop is (Stop.END if cut == run.end else Stop.PARTIAL)


@settings(max_examples=60)
@given(st.binary(max_size=400), st.integers(0, 1 << 40))
def test_any_bytes_are_judged_and_none_raises(noise: bytes, base: int) -> None:
    assert scan_records(noise, base).end <= len(noise)
    for magic in (0xDAA320A7, 0xDAA320AB, BLANK):
        assert scan_records(struct.pack(">II", len(noise) + 8, magic) + noise, base).end <= len(noise) + 8


def test_each_flipped_bit_of_a_body_is_found_and_no_field_can_lead_outside() -> None:
    rng = random.Random(5)
    row = single(topic_field("Topic"), 9, rng.randbytes(40), b"TAGS\x01a\x02")
    record = bytearray(encode_records([row], 512, 7, bytes(8)))
    for position in range(len(record)):
        for bit in range(8):
            record[position] ^= 1 << bit
            run = scan_records(bytes(record), 512, verify=True)
            if 88 <= position < 128 or position < 8 or 28 <= position < 36:
                assert not len(run), (position, bit)
            record[position] ^= 1 << bit


def test_a_record_of_another_place_is_none() -> None:
    record = encode_records([single(topic_field("Topic"), 0, b"body", b"")], 4096, 7, bytes(8))
    assert scan_records(record, 4096).stop is Stop.END
    assert scan_records(record, 4097).stop is Stop.DAMAGED


def test_what_follows_the_last_record_is_told_apart() -> None:
    assert scan_records(b"", 0).stop is Stop.END
    assert scan_records(bytes(200), 0).stop is Stop.NOTHING
    assert scan_records(encode_blank(500) + bytes(492), 0).stop is Stop.BLANK
    assert scan_records(encode_blank(8), 0).stop is Stop.BLANK
    assert scan_records(b"\x00\x00\x01", 0).stop is Stop.PARTIAL
    assert scan_records(b"\xff" * 200, 0).stop is Stop.DAMAGED


def twin_hash(text: str, seed: int = 0) -> int:
    value = seed
    units = text.encode("utf-16-be", "replace")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % (1 << 32)
    return value


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=2000))
def test_java_hash_equals_its_twin(text: str) -> None:
    assert java_hash(text) == signed(twin_hash(text))


@settings(max_examples=100)
@given(st.lists(st.tuples(st.text("09AZaz~\x00\x7f", max_size=150), st.integers(0, (1 << 32) - 1)), max_size=12))
def test_hashes_of_many_texts_equal_their_twins(texts: list[tuple[str, int]]) -> None:
    expected = [twin_hash(text, seed) for text, seed in texts]
    assert hash_texts([text.encode() for text, _ in texts], [seed for _, seed in texts]) == expected


@pytest.mark.parametrize("odd", ["\x7f" * 32, "\xff" * 32, "x" * 33, "x" * 128, "x" * 129, "日本"])
def test_more_texts_than_are_hashed_at_once_with_an_odd_one_among_them(odd: str) -> None:
    texts = [f"{number:032X}" for number in range(600)] + [odd]
    assert hash_texts([text.encode() for text in texts], range(601)) == list(map(twin_hash, texts, range(601)))


def test_no_joint_of_a_hash_overflows() -> None:
    for text in (b"\xff" * 32, b"\xff" * 10_000):
        assert hash_latin(text, 1) == twin_hash(text.decode("latin-1"), 1)


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("TagA", 2598919), ("polygenelubricants", -(1 << 31))])
def test_java_hash_of_known_strings(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(st.lists(st.text(max_size=200)))
def test_java_hashes_of_many_are_those_of_each(texts: list[str]) -> None:
    texts += ["x" * 500, "ä", "t1", "t2"]
    assert java_hashes(texts) == set(map(java_hash, texts))
