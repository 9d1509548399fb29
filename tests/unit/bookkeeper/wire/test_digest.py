"""Entry layout and digests: known vectors, what the original's client wrote, and damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.errors import DigestMismatch, UsageError

GOLDEN = json.loads((Path(__file__).parents[3] / "wire" / "golden" / "entries.json").read_text())

KINDS = st.sampled_from(DigestType)


def test_master_keys() -> None:
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"testPasswd").hex() == "2e2a69d870796fe05c0e77c52a29ce5e4222b758"


@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        (DigestType.CRC32, "00000000dd46579c"),
        (DigestType.CRC32C, "44fe5a47"),
        (DigestType.HMAC, "9fb0ff0eba7178f885d00e931f0dd7b327eb9aba"),
        (DigestType.DUMMY, ""),
    ],
)
def test_entries_of_each_kind(kind: DigestType, digest: str) -> None:
    header = "00000000000000010000000000000000ffffffffffffffff0000000000000003"
    entry = Digest.of(kind).encode(EntryHeader(1, 0, -1, 3), b"abc")
    assert entry.hex() == header + digest + b"abc".hex()


@pytest.mark.parametrize("golden", GOLDEN["entries"], ids=lambda golden: f"{golden['digest']}-{golden['entry']}")
def test_what_the_original_wrote_is_read_and_written_alike(golden: dict[str, str | int]) -> None:
    data = bytes.fromhex(str(golden["hex"]))
    digest = Digest.of(DigestType.parse(str(golden["digest"])), str(golden["password"]).encode())
    ledger = int.from_bytes(data[:8], "big")
    header, payload = digest.decode(ledger, int(golden["entry"]), data)
    assert header == EntryHeader(ledger, int(golden["entry"]), -1, 16 * (int(golden["entry"]) + 1))
    assert len(payload) == 16
    assert digest.encode(header, payload) == data


@given(KINDS, st.binary(max_size=8), st.binary(max_size=300), st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_round_trip(kind: DigestType, password: bytes, payload: bytes, ledger: int, entry: int) -> None:
    digest, header = Digest.of(kind, password), EntryHeader(ledger, entry, entry - 1, len(payload))
    for asked in (entry, None):
        found, data = digest.decode(ledger, asked, digest.encode(header, payload))
        assert (found, bytes(data)) == (header, payload)
    with pytest.raises(DigestMismatch, match="another entry"):
        digest.decode(ledger, entry + 1, digest.encode(header, payload))
    with pytest.raises(DigestMismatch, match="another entry"):
        digest.decode(ledger + 1, None, digest.encode(header, payload))


@given(st.sampled_from([DigestType.CRC32, DigestType.CRC32C, DigestType.HMAC]), st.binary(max_size=64), st.data())
def test_any_flipped_bit_is_noticed(kind: DigestType, payload: bytes, data: st.DataObject) -> None:
    digest = Digest.of(kind, b"pw")
    entry = bytearray(digest.encode(EntryHeader(3, 4, 3, 99), payload))
    bit = data.draw(st.integers(0, len(entry) * 8 - 1))
    entry[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatch):
        digest.decode(3, 4, entry)


@given(KINDS, st.integers(0, 51))
def test_short_entries_are_no_entries(kind: DigestType, size: int) -> None:
    digest = Digest.of(kind)
    whole = digest.encode(EntryHeader(3, 4, 3, 0), b"")
    if size < len(whole):
        with pytest.raises(DigestMismatch, match="shorter"):
            digest.decode(3, 4, whole[:size])


def test_passwords_matter_to_hmac_alone() -> None:
    header = EntryHeader(1, 2, 1, 5)
    for kind in DigestType:
        same = Digest.of(kind, b"a").encode(header, b"hello") == Digest.of(kind, b"b").encode(header, b"hello")
        assert same is (kind is not DigestType.HMAC)


def test_names() -> None:
    assert DigestType.parse("crc32c") is DigestType.CRC32C
    assert DigestType.parse("MAC") is DigestType.parse("hmac") is DigestType.HMAC
    assert DigestType.parse(DigestType.DUMMY) is DigestType.DUMMY
    with pytest.raises(UsageError, match="unknown digest"):
        DigestType.parse("md5")


@given(KINDS, st.binary(max_size=8), st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=90)), max_size=5))
def test_all_at_once_is_one_after_another(kind: DigestType, password: bytes, parts: list[tuple[bytes, bytes]]) -> None:
    digest = Digest.of(kind, password)
    headers, payloads = [header for header, _ in parts], [memoryview(payload) for _, payload in parts]
    one_by_one = b"".join(digest.compute(header, payload) for header, payload in parts)
    assert digest.compute_all(headers, payloads) == one_by_one
    assert len(one_by_one) == digest.size * len(parts)


def test_an_explicit_lac_is_what_the_originals_client_sent() -> None:
    digest, body = Digest.of(DigestType.CRC32C), bytes.fromhex("000000000000000400000000000000009cbf58d9")
    assert digest.encode_lac(4, 0) == body
    assert digest.decode_lac(4, body) == 0


@given(KINDS, st.binary(max_size=8), st.integers(0, 1 << 62), st.integers(0, 1 << 62), st.data())
def test_an_explicit_lac_round_trip(
    kind: DigestType, password: bytes, ledger: int, lac: int, data: st.DataObject
) -> None:
    digest = Digest.of(kind, password)
    body = digest.encode_lac(ledger, lac)
    assert digest.decode_lac(ledger, body) == lac
    with pytest.raises(DigestMismatch, match="another ledger"):
        digest.decode_lac(ledger + 1, body)
    with pytest.raises(DigestMismatch, match="explicit"):
        digest.decode_lac(ledger, body[: data.draw(st.integers(0, len(body) - 1))])
    if kind is not DigestType.DUMMY:
        at = data.draw(st.integers(0, len(body) - 1))
        with pytest.raises(DigestMismatch):
            digest.decode_lac(ledger, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
