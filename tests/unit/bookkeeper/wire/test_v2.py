"""Version 2 frames: vectors, recorded traffic of the original, and bytes that are no frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.digest import Digest, EntryHeader, master_key
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.errors import RemoteProtocolError

GOLDEN = json.loads((Path(__file__).parents[3] / "wire" / "golden" / "entries.json").read_text())["v2"]
ANSWERED = [golden for golden in GOLDEN if golden["response"] != "closed"]

ids = st.integers(-(1 << 63), (1 << 63) - 1)
codes = st.sampled_from(list(v2.NUMBERS))
keys = st.binary(min_size=20, max_size=20)
bodies = st.binary(min_size=16, max_size=200)
versions = st.integers(0, 255)


def test_vectors() -> None:
    entry = Digest.of(DigestType.CRC32C).encode(EntryHeader(1, 0, -1, 3), b"abc")
    add = v2.AddFrame(1, 0, master_key(b""), entry)
    assert add.encode().hex() == (
        "0000003f"
        "02010000"
        "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
        "00000000000000010000000000000000ffffffffffffffff0000000000000003"
        "44fe5a47"
        "616263"
    )
    assert v2.encode_response(add, Code.OK).hex() == "00000018020100000000000000000000000000010000000000000000"
    fence = v2.ReadFrame(1, -1, master_key(b""), v2.RequestFlag.FENCE)
    assert fence.encode().hex() == (
        "00000028020200010000000000000001ffffffffffffffff850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    )


@pytest.mark.parametrize("golden", ANSWERED, ids=lambda golden: golden["name"])
def test_recorded_requests_and_answers(golden: dict[str, str]) -> None:
    """Each is understood, and written again byte for byte."""
    request = v2.decode_request(bytes.fromhex(golden["request"])[4:])
    if "trailing bytes" not in golden["name"] and "unknown flag" not in golden["name"]:
        assert request.encode().hex() == golden["request"]
    response = bytes.fromhex(golden["response"])
    if int.from_bytes(response[4:8], "big") >> 24 == 0:
        return  # version 0, which no client of ours speaks, has another answer header; encoded below
    answer = v2.decode_response(response[4:])
    if isinstance(answer, v2.Response):
        assert isinstance(request, v2.AddFrame | v2.ReadFrame)
        assert (answer.ledger, answer.entry) == (request.ledger, request.entry)
        assert v2.encode_response(request, answer.code, answer.entry_bytes) == response
    elif isinstance(answer, v2.BatchReadResponse):
        assert isinstance(request, v2.BatchReadFrame)
        assert (answer.ledger, answer.first, answer.request_id) == (request.ledger, request.first, request.request_id)
        assert v2.encode_batch_response(request, answer.code, list(answer.entries)) == response
    else:
        assert v2.AuthFrame(answer.message).encode() == response


def test_version_0_has_the_opcode_alone_in_requests_and_answers() -> None:
    [golden] = [golden for golden in ANSWERED if "version 0" in golden["name"]]
    request = v2.decode_request(bytes.fromhex(golden["request"])[4:])
    assert isinstance(request, v2.ReadFrame)
    response = bytes.fromhex(golden["response"])
    assert v2.encode_response(request, Code.OK, response[4 + v2.RESPONSE_BYTES :]) == response


def test_what_the_original_closes_on_is_refused() -> None:
    closed = [golden for golden in GOLDEN if golden["response"] == "closed"]
    assert closed
    for golden in closed:
        with pytest.raises(RemoteProtocolError):
            v2.decode_request(bytes.fromhex(golden["request"])[4:])


@given(ids, ids, keys, bodies, st.integers(0, 0xFFFF), versions)
def test_adds_round_trip(ledger: int, entry: int, key: bytes, rest: bytes, flags: int, version: int) -> None:
    body = EntryHeader(ledger, entry, -1, 0)
    data = Digest.of(DigestType.DUMMY).encode(body, rest)
    add = v2.AddFrame(ledger, entry, key, data, flags if version else 0, version)
    found = v2.decode_request(add.encode()[4:])
    assert isinstance(found, v2.AddFrame)
    assert (found.ledger, found.entry, found.master_key, bytes(found.body)) == (ledger, entry, key, data)
    assert (found.flags, found.version) == (add.flags, version)


@given(ids, ids, keys, st.integers(0, 0xFFFF))
def test_only_fencing_reads_carry_a_key(ledger: int, entry: int, key: bytes, flags: int) -> None:
    fencing = bool(flags & v2.RequestFlag.FENCE)
    read = v2.ReadFrame(ledger, entry, key if fencing else None, flags)
    assert v2.decode_request(read.encode()[4:]) == read
    batch = v2.BatchReadFrame(ledger, entry, 7, -3, 1 << 40, key if fencing else None, flags)
    assert v2.decode_request(batch.encode()[4:]) == batch
    if fencing:
        with pytest.raises(RemoteProtocolError, match="master key"):
            v2.decode_request(v2.ReadFrame(ledger, entry, None, flags).encode()[4:])
        with pytest.raises(RemoteProtocolError, match="master key"):
            v2.decode_request(v2.ReadFrame(ledger, entry, key[:-1], flags).encode()[4:])


@given(ids, ids, codes, st.binary(max_size=100))
def test_answers_round_trip(ledger: int, entry: int, code: Code, data: bytes) -> None:
    for request in (v2.ReadFrame(ledger, entry), v2.AddFrame(ledger, entry, bytes(20), b"")):
        answer = v2.decode_response(v2.encode_response(request, code, data)[4:])
        assert isinstance(answer, v2.Response)
        assert (answer.ledger, answer.entry, answer.code, bytes(answer.entry_bytes)) == (ledger, entry, code, data)
        assert answer.op == (v2.Op.READ if isinstance(request, v2.ReadFrame) else v2.Op.ADD)


def test_each_code_has_a_number_and_a_number_that_is_none_is_undefined() -> None:
    assert set(v2.NUMBERS) == set(Code) - {Code.UNDEFINED, Code.AMBIGUOUS}
    for code, number in v2.NUMBERS.items():
        frame = v2.encode_response(v2.ReadFrame(1, 2), code)
        assert int.from_bytes(frame[8:12], "big") == number
        batch = v2.encode_batch_response(v2.BatchReadFrame(1, 2, 3, 0, 0), code)
        assert int.from_bytes(batch[8:12], "big") == number
        undefined = frame[:8] + (number + 50).to_bytes(4, "big") + frame[12:]
        answer = v2.decode_response(undefined[4:])
        assert isinstance(answer, v2.Response) and answer.code is Code.UNDEFINED


alike = st.builds(lambda entry, count: [entry] * count, st.binary(max_size=50), st.integers(2, 10))


@given(ids, ids, ids, st.lists(st.binary(max_size=50), max_size=10) | alike)
def test_batch_answers_round_trip(ledger: int, first: int, request_id: int, entries: list[bytes]) -> None:
    request = v2.BatchReadFrame(ledger, first, request_id, 0, 0)
    answer = v2.decode_response(v2.encode_batch_response(request, Code.OK, list(entries))[4:])
    assert isinstance(answer, v2.BatchReadResponse)
    assert (answer.ledger, answer.first, answer.request_id, answer.code) == (ledger, first, request_id, Code.OK)
    assert [bytes(entry) for entry in answer.entries] == entries


@given(st.lists(st.binary(max_size=20), max_size=4), st.integers(0, 3), st.integers(0, (1 << 32) - 1))
def test_a_lying_length_in_a_batch_answer_is_refused_or_stays_inside(
    entries: list[bytes], which: int, lie: int
) -> None:
    frame = bytearray(v2.encode_batch_response(v2.BatchReadFrame(1, 0, 9, 0, 0), Code.OK, list(entries)))
    position = 4 + v2.BATCH_RESPONSE_BYTES
    for entry in entries[:which]:
        position += 4 + len(entry)
    frame[position : position + 4] = lie.to_bytes(4, "big")
    try:
        answer = v2.decode_response(bytes(frame)[4:])
    except RemoteProtocolError:
        return
    assert isinstance(answer, v2.BatchReadResponse)
    assert sum(4 + len(entry) for entry in answer.entries) == len(frame) - 4 - v2.BATCH_RESPONSE_BYTES


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_protocol_error(body: bytes) -> None:
    for prefix in (b"", b"\x02\x01\x00\x00", b"\x02\x02\x00\x01", b"\x02\x07\x00\x00", b"\x02\x03\x00\x00"):
        for decode in (v2.decode_request, v2.decode_response):
            try:
                decode(prefix + body)
            except RemoteProtocolError as error:
                assert str(error)


@pytest.mark.rule("Q15")
def test_q15_only_two_codes_are_a_no() -> None:
    assert {code for code in Code if code in NO_CODES} == {Code.NO_ENTRY, Code.NO_LEDGER}
