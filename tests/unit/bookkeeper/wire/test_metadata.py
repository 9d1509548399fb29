"""Ledger metadata in its three formats: there and back, and every damage found."""

from __future__ import annotations

import contextlib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire.formats_pb2 import LedgerMetadataFormat
from tallystick.bookkeeper.wire.metadata import HEADER, _delimited, _from_message, closed_end, decode, encode
from tallystick.bookkeeper.wire.values import DigestType, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import MetadataError, UsageError

OPEN = LedgerMetadata(
    3,
    2,
    2,
    (Fragment(0, ("b1", "b2", "b3")), Fragment(7, ("b1", "b4", "b3"))),
    DigestType.CRC32C,
    b"pw",
    custom={"k": b"\x00\xff"},
    ctoken=99,
)
FORMAT_1 = replace(
    OPEN, digest_type=DigestType.CRC32, password=b"", custom={}, format_version=1, has_password=False, ctoken=0
)
BOOKIE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
ID = st.integers(0, 2**63 - 1)
CUSTOM = st.dictionaries(st.text(max_size=9), st.binary(max_size=40), max_size=3)


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    version = draw(st.sampled_from((1, 2, 3)))
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    firsts = sorted(draw(st.sets(ID, min_size=1, max_size=4)))
    fragments = tuple(Fragment(first, draw(st.tuples(*[BOOKIE] * size))) for first in firsts)
    state = draw(st.sampled_from(LedgerState))
    closed = state is LedgerState.CLOSED
    found = LedgerMetadata(size, write, write, fragments, state=state, format_version=version, has_password=False)
    if closed:
        found = replace(found, last_entry=draw(st.integers(-1, 2**63 - 1)), length=draw(ID))
    if version == 1:
        return found
    if draw(st.booleans()):
        digest, password = draw(st.sampled_from(DigestType)), draw(st.binary(max_size=40))
        found = replace(found, has_password=True, digest_type=digest, password=password)
    return replace(
        found,
        ack_quorum=draw(st.integers(1, write)),
        custom=draw(CUSTOM),
        ctime_ms=draw(st.none() | ID),
        ctoken=draw(ID) if version == 3 else 0,
    )


@pytest.mark.rule("Q3")
@given(ledgers())
def test_q3_what_was_written_is_read(metadata: LedgerMetadata) -> None:
    data = encode(metadata)
    found = decode(data)
    assert found == metadata
    assert (found.ctoken, found.ctime_ms) == (metadata.ctoken, metadata.ctime_ms)
    assert encode(found) == data


@given(ledgers(), st.booleans())
def test_a_new_fragment_changes_nothing_else(metadata: LedgerMetadata, again: bool) -> None:
    metadata = replace(metadata, ctoken=7, ctime_ms=8, ctime_stored=False)
    newest = metadata.fragments[-1]
    first = newest.first + (not again)
    changed = metadata.with_fragment(first, newest.bookies[::-1])
    kept = metadata.fragments[:-1] if again else metadata.fragments
    assert changed.fragments == (*kept, Fragment(first, newest.bookies[::-1]))
    for field in fields(LedgerMetadata):
        assert field.name == "fragments" or getattr(changed, field.name) == getattr(metadata, field.name), field.name


@given(ledgers(), st.lists(st.tuples(ID, ID, ID, st.none() | ID, st.booleans()), min_size=1, max_size=4))
def test_what_ledgers_have_alike_is_decoded_once_and_nothing_else_is_shared(
    metadata: LedgerMetadata, others: list[tuple[int, int, int, int | None, bool]]
) -> None:
    metadata = replace(metadata, format_version=3)
    for last_entry, length, ctoken, ctime_ms, stored in others:
        one = replace(metadata, ctoken=ctoken, ctime_ms=ctime_ms, ctime_stored=stored and ctime_ms is not None)
        if one.is_closed:
            one = one.closed(last_entry, length)
        found, data = decode(encode(one), ctime_ms=5), encode(one)
        dumb = _from_message(LedgerMetadataFormat.FromString(_delimited(data[len(HEADER) + 2 :])), 3, 5)
        for field in fields(LedgerMetadata):
            assert getattr(found, field.name) == getattr(dumb, field.name), field.name
        end = closed_end(data)
        assert (end is not None) == (dumb.is_closed and len(_delimited(data[len(HEADER) + 2 :])) <= 1024)
        if end is not None:
            assert (end.last_entry, end.length) == (dumb.last_entry, dumb.length)
            assert replace(end.common, last_entry=dumb.last_entry, length=dumb.length) == dumb


@pytest.mark.parametrize("data", [b"", b"junk", HEADER + b"3\n", HEADER + b"3\n\x02\x08\x01", HEADER + b"3\n\x01\xff"])
def test_the_end_of_what_is_no_metadata_is_for_decode_to_tell(data: bytes) -> None:
    assert closed_end(data) is None
    with pytest.raises(MetadataError):
        decode(data)


@pytest.mark.parametrize("missing", ["length", "lastEntryId", "state", "quorumSize", "segment"])
def test_a_field_that_lacks_is_not_filled_from_another_ledger(missing: str) -> None:
    closed = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),)).closed(7, 70)
    whole = encode(closed)
    message = LedgerMetadataFormat.FromString(_delimited(whole[len(HEADER) + 2 :]))
    assert decode(whole) == closed
    message.ClearField(missing)
    body = message.SerializePartialToString()
    damaged = HEADER + b"3\n" + bytes([len(body)]) + body
    if missing == "lastEntryId":  # the only one that may
        assert decode(damaged).last_entry == -1
        assert closed_end(damaged) is None
        return
    assert closed_end(damaged) is None
    with pytest.raises(MetadataError):
        decode(damaged)


def test_format_1_is_lines() -> None:
    header = b"BookieMetadataFormatVersion\t1\n2\n3\n"
    body = b"0\n0\tb1\tb2\tb3\n7\tb1\tb4\tb3\n"
    assert encode(FORMAT_1) == header + body
    assert encode(FORMAT_1.in_recovery()) == header + body + b"-102\tCLOSED"
    assert encode(FORMAT_1.closed(41, 4200)) == header + body.replace(b"0\n", b"4200\n", 1) + b"41\tCLOSED"
    assert decode(encode(FORMAT_1)).ack_quorum == 2


def test_format_2_is_protobuf_text_without_a_token() -> None:
    text = encode(replace(OPEN, format_version=2)).decode()
    assert text.startswith("BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 3\nlength: 0\n")
    assert 'lastEntryId: -1\nstate: OPEN\nsegment {\n  ensembleMember: "b1"\n' in text
    assert 'digestType: CRC32C\npassword: "pw"\nackQuorumSize: 2\n' in text
    assert "cToken" not in text


def test_format_2_of_another_writer() -> None:
    text = (
        'quorumSize: 2 ensembleSize: 2 length: 5 lastEntryId: 1 state: CLOSED digestType: HMAC password: "\\001"\n'
        'segment { ensembleMember: "a:1" ensembleMember: "b:2" firstEntryId: 0 }'
    )
    found = decode(HEADER + b"2\n" + text.encode())
    assert (found.ack_quorum, found.last_entry, found.length) == (2, 1, 5), "no ack quorum: the write quorum"
    assert (found.digest_type, found.password, found.ctime_ms) == (DigestType.HMAC, b"\x01", None)


def test_the_end_of_a_ledger_that_is_not_closed_is_not_read() -> None:
    found = decode(encode(OPEN.closed(41, 4200)).replace(b"\x28\x03", b"\x28\x01"))
    assert (found.state, found.last_entry, found.length) == (LedgerState.OPEN, -1, 0)


def test_the_creation_time_of_the_service_is_not_written_back() -> None:
    found = decode(encode(OPEN), ctime_ms=1234)
    assert (found.ctime_ms, found.ctime_stored) == (1234, False)
    assert encode(found) == encode(OPEN)
    stored = replace(OPEN, ctime_ms=5)
    assert decode(encode(stored), ctime_ms=1234).ctime_ms == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"BookieMetadataFormatVersion\n3\n",
        b"BookieMetadataFormatVersion\t4\n",
        b"BookieMetadataFormatVersion\t0\n",
        b"BookieMetadataFormatVersion\t-1\n",
        b"BookieMetadataFormatVersion\t" + b"0" * 99 + b"3\n",
        HEADER + b"1\n",
        HEADER + b"1\n2\n3\n0",
        HEADER + b"1\n2\n3\n0\n0\ta\tb\tc",
        HEADER + b"1\n2\n3\n0\n0\ta\tb\n",
        HEADER + b"1\n2\n3\nx\n0\ta\tb\tc\n",
        HEADER + b"1\n2\n3\n0\n0\ta\tb\tc\n9\tOPEN",
        HEADER + b"1\n\xff\n3\n0\n0\ta\tb\tc\n",
        HEADER + b"2\nquorumSize: 1",
        HEADER + b"2\n}{",
        HEADER + b"2\n\xff",
        HEADER + b"3\n",
        HEADER + b"3\n\xff\xff\xff\xff\xff\x01",
        HEADER + b"3\n\x02\x08",
        HEADER + b"3\n\x00",
    ],
)
def test_damaged_metadata_is_an_error_that_says_where(data: bytes) -> None:
    with pytest.raises(MetadataError) as caught:
        decode(data, where="/ledgers/00/0000/L0001")
    assert caught.value.fields["where"] == "/ledgers/00/0000/L0001"


@pytest.mark.parametrize("text", [b"a-bookie", b"a-key"])
def test_a_text_that_is_not_utf_8_is_damage(text: bytes) -> None:
    data = encode(replace(OPEN, fragments=(Fragment(0, ("b1", "b2", "a-bookie")),), custom={"a-key": b"x"}))
    with pytest.raises(MetadataError, match="damaged"):
        decode(data.replace(text, b"\x80" + text[1:]))


@given(st.data())
def test_no_damage_is_any_other_error(data: st.DataObject) -> None:
    whole = encode(OPEN)
    at = data.draw(st.integers(0, len(whole) - 1))
    hurt = data.draw(
        st.sampled_from(
            (whole[:at], whole + b"x", whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :])
        )
    )
    with contextlib.suppress(MetadataError):
        assert decode(encode(decode(hurt))) == decode(hurt), "what is taken is metadata that can be stored again"


@pytest.mark.parametrize(
    "change",
    [
        {"ensembleSize: 3": "ensembleSize: 4"},
        {"quorumSize: 2\nensemble": "quorumSize: 4\nensemble"},
        {"firstEntryId: 7": "firstEntryId: 0"},
        {"firstEntryId: 7": "firstEntryId: -7"},
        {'password: "pw"\n': ""},
        {"digestType: CRC32C\n": ""},
        {"state: OPEN": "state: 9"},
    ],
)
def test_contradictions_are_refused(change: dict[str, str]) -> None:
    text = encode(replace(OPEN, format_version=2)).decode()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(MetadataError):
        decode(text.encode())


def test_a_format_that_cannot_hold_it_is_refused() -> None:
    for metadata in (replace(OPEN, format_version=1), replace(OPEN, format_version=4), replace(OPEN, ctoken=1 << 64)):
        with pytest.raises(UsageError):
            encode(metadata)
