"""What is alike is read as the references read it; what is not, or lies, is left to them."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.codec.records import BORN_V6, STORE_V6, Content, Row, Stop, encode_records, scan_records, topic_field
from tallystick.codec.uniform_records import scan_uniform_records, split_uniform_batch
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.wire.record import decode_batch, encode_batch

COUNT = 20
BASE = 4096


def contents(rng: random.Random, count: int, body: int, properties: int, flag: int = 0) -> list[Content]:
    return [(flag, rng.randbytes(body), rng.randbytes(properties)) for _ in range(count)]


def row(messages: list[Content], queue: int = 0, topic: str = "T", host: bytes = bytes(8), sys_flag: int = 0) -> Row:
    return topic_field(topic), queue, 7, sys_flag, 1, host, 0, messages


def log_of(*rows: Row) -> bytes:
    return encode_records(rows, BASE, 2, bytes(8))


@settings(max_examples=40)
@given(st.integers(0, 300), st.integers(0, 80), st.integers(1, 3), st.integers(0, 500), st.integers(0, 1 << 32))
def test_alike_records_are_read_as_the_reference_reads_them(
    body: int, properties: int, queues: int, more: int, seed: int
) -> None:
    rng = random.Random(seed)
    whole = log_of(*[row(contents(rng, COUNT, body, properties), queue, sys_flag=queue * 4) for queue in range(queues)])
    cut = whole + whole[: min(more, len(whole) // (COUNT * queues) - 1)]  # the begin of the next one
    run = scan_uniform_records(cut, BASE)
    assert run is not None
    assert run == scan_records(whole, BASE) and run.stop is Stop.END


def unlike() -> dict[str, bytes]:
    rng = random.Random(3)
    usual = contents(rng, COUNT, 50, 20)
    longer, other_split = contents(rng, 1, 51, 20), contents(rng, 1, 49, 21)
    return {
        "a longer record at the end": log_of(row([*usual, *longer])),
        "a longer record in between": log_of(row([*usual, *longer, *usual])),
        "as long, with a shorter body": log_of(row([*usual, *other_split])),
        "another topic": log_of(row(usual), row(usual, topic="U")),
        "long topics": log_of(row(usual, topic="t" * 200)),
        "IPv6 hosts": log_of(row(usual, host=bytes(20))),
        "few": log_of(row(usual[:3])),
        "of another place": encode_records([row(usual)], BASE + 1, 2, bytes(8)),
    }


@pytest.mark.parametrize("what", unlike())
def test_unlike_records_are_for_the_reference(what: str) -> None:
    assert scan_uniform_records(unlike()[what], BASE) is None


def test_a_lying_field_is_for_the_reference() -> None:
    """Each field of the last record that a reader relies on; contents and times may be anything."""
    log = bytearray(log_of(row(contents(random.Random(4), COUNT, 10, 5))))
    size = len(log) // COUNT
    start = len(log) - size
    relied_on = [*range(8), *range(28, 40), *range(84, 88), *range(98, 99), *range(100, 102)]
    for position in relied_on:
        for bit in range(8):
            log[start + position] ^= 1 << bit
            found, said = scan_uniform_records(bytes(log), BASE), scan_records(bytes(log), BASE)
            assert found is None or found == said, (position, bit)
            log[start + position] ^= 1 << bit
    for flag in (BORN_V6, STORE_V6):
        struct.pack_into(">i", log, start + 36, flag)
        assert scan_uniform_records(bytes(log), BASE) is None


@settings(max_examples=60)
@given(st.binary(max_size=4000), st.integers(0, (1 << 32) - 1))
def test_noise_is_not_alike_and_raises_nothing(noise: bytes, size: int) -> None:
    for head in (b"", struct.pack(">II", size, 0xDAA320A7), struct.pack(">II", 100, 0xDAA320A7), bytes(16)):
        assert scan_uniform_records(head + noise, 0) is None
        for batch in (head + noise, struct.pack(">I", size % 200) + noise):
            members = split_uniform_batch(batch)
            assert members is None or members == decode_batch(batch)


@settings(max_examples=40)
@given(st.integers(0, 200), st.integers(0, 60), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 1 << 32))
def test_alike_members_are_those_of_the_batch(body: int, properties: int, flag: int, seed: int) -> None:
    members = contents(random.Random(seed), COUNT, body, properties, flag)
    assert split_uniform_batch(encode_batch(members)) == members == decode_batch(encode_batch(members))


def test_unlike_members_are_for_the_reference() -> None:
    rng = random.Random(6)
    usual, size = contents(rng, COUNT, 30, 10), 20 + 30 + 2 + 10
    for other in ((0, b"x" * 31, b"p" * 10), (0, b"x" * 31, b"p" * 9), (1, b"x" * 30, b"p" * 10)):
        for members in ([*usual, other], [other, *usual], [*usual, other, *usual]):
            assert split_uniform_batch(encode_batch(members)) is None
            assert decode_batch(encode_batch(members)) == members
    lying = bytearray(encode_batch(usual))
    lying[-11] += 1  # the size of the last one's properties
    assert split_uniform_batch(bytes(lying)) is None
    with pytest.raises(RemoteProtocolError):
        decode_batch(bytes(lying))
    checksummed = bytearray(encode_batch(usual))
    checksummed[size + 5] = 9  # bytes that nobody reads may differ
    assert decode_batch(bytes(checksummed)) == usual
