"""Lists of ledgers and cursors: there and back, whatever is in them, and every damage named."""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.cursor_bytes import decode_cursor, decode_cursor_state, encode_cursor
from tallystick.bookkeeper.wire import managed_ledgers as wire
from tallystick.bookkeeper.wire.compression import Compression, compress
from tallystick.bookkeeper.wire.stream_lists import list_decoding, list_encoding
from tallystick.bookkeeper.wire.stream_values import (
    AckedRange,
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)
from tallystick.bookkeeper.wire.streams_pb2 import (
    ManagedCursorInfo,
    ManagedLedgerInfo,
    NestedPositionInfo,
    PositionInfo,
)
from tallystick.codec.steps import finished
from tallystick.errors import MetadataError, UsageError

ID = st.integers(0, 2**63 - 1)
TEXTS = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)
POSITION = st.tuples(ID, st.integers(-1, 2**63 - 1)).map(lambda pair: Position(*pair))
NEWER_FIELD = b"\x98\x06\x07"  # number 99, 7
WORDS = st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple)


@st.composite
def streams(draw: st.DrawFn) -> StreamInfo:
    ledgers = []
    for ledger in sorted(draw(st.sets(ID, max_size=5))):
        properties = draw(TEXTS)
        if draw(st.booleans()):
            ledgers.append(StreamLedger(ledger, has_counts=False, properties=properties))
        else:
            unknown = draw(st.sampled_from((b"", NEWER_FIELD)))
            entries, size, timestamp = draw(ID), draw(ID), draw(ID)
            ledgers.append(StreamLedger(ledger, entries, size, timestamp, properties=properties, unknown=unknown))
    unknown = draw(st.sampled_from((b"", NEWER_FIELD)))
    return StreamInfo(tuple(ledgers), draw(st.none() | POSITION), draw(TEXTS), unknown)


@st.composite
def states(draw: st.DrawFn) -> CursorState:
    """Of ranges that do not touch, each in one ledger and not far from its first entry."""
    acked = []
    for ledger in sorted(draw(st.sets(ID, max_size=3))):
        after = -2
        for gap, length in draw(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), max_size=4)):
            after += gap
            acked.append(AckedRange(Position(ledger, after), Position(ledger, after + length)))
            after += length
    batches = draw(st.dictionaries(POSITION, WORDS, max_size=3))
    numbers = draw(st.dictionaries(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1), max_size=3))
    return CursorState(draw(POSITION), tuple(acked), MappingProxyType(batches), numbers)


@given(streams(), st.sampled_from(Compression))
def test_lists_come_back(info: StreamInfo, compression: Compression) -> None:
    assert wire.decode_stream(wire.encode_stream(info, compression=compression), where="here") == info


@given(states())
def test_states_of_cursors_come_back(state: CursorState) -> None:
    data = wire.encode_cursor_state(state)
    assert decode_cursor_state(data, where="here") == state
    assert not PositionInfo.FromString(data).individualDeletedMessages  # but as bitmaps


@given(st.integers(-1, 2**63 - 1), states(), ID, TEXTS, st.sampled_from((b"", NEWER_FIELD)))
def test_cursors_come_back(ledger: int, state: CursorState, active: int, own: dict[str, str], unknown: bytes) -> None:
    info = CursorInfo(ledger, state, active, own, unknown)
    assert decode_cursor(encode_cursor(info), where="here") == info


@pytest.mark.parametrize("count", [2, 2_000])
def test_what_a_newer_version_stores_within_properties_and_the_end_is_written_back(count: int) -> None:
    stored = ManagedLedgerInfo()
    for ledger in range(count):
        stored.ledgerInfo.add(ledgerId=ledger, entries=1, size=1, timestamp=1)
    for holder in (stored.ledgerInfo[0], stored.ledgerInfo[-1], stored):
        for key in ("plain", "newer"):
            holder.properties.add(key=key, value="v")
        holder.properties[1].MergeFromString(NEWER_FIELD)
    stored.terminatedPosition.ledgerId = stored.terminatedPosition.entryId = 5
    stored.terminatedPosition.MergeFromString(NEWER_FIELD)
    info = finished(list_decoding(stored.SerializeToString(), where="here"))
    assert ManagedLedgerInfo.FromString(wire.plain_bytes(finished(list_encoding(info)))) == stored
    assert finished(list_decoding(finished(list_encoding(info)), where="here")) == info

    changed = replace(info, properties={"newer": "w", "other": "v"}, terminated=None)
    written = ManagedLedgerInfo.FromString(wire.plain_bytes(finished(list_encoding(changed))))
    assert {each.key: each.value for each in written.properties} == {"newer": "w", "other": "v"}
    assert NEWER_FIELD not in b"".join(each.SerializeToString() for each in written.properties)
    assert not written.HasField("terminatedPosition") and written.ledgerInfo == stored.ledgerInfo


def test_of_a_property_that_is_there_twice_the_last_one_is_written_back() -> None:
    stored = ManagedLedgerInfo()
    for value in ("first", "last"):
        stored.properties.add(key="twice", value=value)
        stored.properties[-1].MergeFromString(NEWER_FIELD)
    info = finished(list_decoding(stored.SerializeToString(), where="here"))
    assert info.properties == {"twice": "last"}
    assert finished(list_decoding(finished(list_encoding(info)), where="here")) == info


def test_what_a_newer_version_stores_within_properties_of_a_cursor_is_written_back() -> None:
    stored = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=4)
    stored.cursorProperties.add(name="newer", value="v").MergeFromString(NEWER_FIELD)
    info = decode_cursor(stored.SerializeToString(), where="here")
    assert encode_cursor(info) == stored.SerializeToString()
    assert NEWER_FIELD not in encode_cursor(replace(info, properties={}))


def test_a_stream_that_was_just_made_is_empty_bytes() -> None:
    assert wire.encode_stream(StreamInfo()) == b""
    assert wire.decode_stream(b"", where="here") == StreamInfo()


def test_a_cursor_whose_ledger_has_its_state() -> None:
    info = CursorInfo(7, None)
    assert decode_cursor(encode_cursor(info), where="here") == info
    with pytest.raises(MetadataError, match="neither a ledger nor a position"):
        decode_cursor(encode_cursor(CursorInfo(-1, None)), where="here")


LONG = StreamInfo(tuple(StreamLedger(ledger, 50_000, 2**31, 1_795_255_254_416) for ledger in range(0, 30_000, 3)))


@pytest.mark.parametrize("compression", Compression)
def test_a_long_list_is_compressed(compression: Compression) -> None:
    data = wire.encode_stream(LONG, compression=compression)
    assert data.startswith(b"\x47\x78") == (compression is not Compression.NONE)
    assert wire.decode_stream(data, where="here") == LONG


def test_a_list_is_compressed_beyond_16_384_bytes_as_in_pulsar() -> None:
    data = wire.encode_stream(StreamInfo(properties={"k": "v" * 16_000}))
    longest = 16_000 + 16_384 - len(data)
    assert len(wire.encode_stream(StreamInfo(properties={"k": "v" * longest}))) == 16_384
    assert len(wire.encode_stream(StreamInfo(properties={"k": "v" * (longest + 1)}))) < 100


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
def test_the_longest_list_is_read_and_none_that_is_longer_is_written(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody can read again would be the end of its stream."""
    info = StreamInfo(tuple(StreamLedger(ledger, 1, 1, 1) for ledger in range(3_000)))
    monkeypatch.setattr(wire, "LONGEST", len(wire.plain_stream(info)))
    data = wire.encode_stream(info, compression=compression)
    assert wire.decode_stream(data, where="") == info
    assert finished(list_decoding(finished(list_encoding(info)), where="")) == info
    monkeypatch.setattr(wire, "LONGEST", wire.LONGEST - 1)
    with pytest.raises(MetadataError, match=f"{wire.LONGEST} "):
        wire.decode_stream(data, where="")
    with pytest.raises(UsageError, match="too long to be read again"):
        wire.encode_stream(info, compression=compression)
    with pytest.raises(UsageError, match="too long to be read again"):
        finished(list_encoding(info))


def test_an_offload_is_kept_as_it_is() -> None:
    done = b"\x08\x01\x10\x02\x18\x01\x32\x03\x0a\x01s"
    info = StreamInfo((StreamLedger(1, 2, 3, 4, offload=done, is_offloaded=True), StreamLedger(2, has_counts=False)))
    data = wire.encode_stream(info)
    assert data == b"\x0a\x15\x08\x01\x10\x02\x18\x03\x20\x04\x2a" + b"\x0b" + done + b"\x0a\x04\x08\x02\x20\x00"
    assert wire.decode_stream(data, where="here") == info
    under_way = StreamInfo((StreamLedger(1, 2, 3, 4, offload=done.replace(b"\x18\x01", b"\x18\x00")),))
    assert wire.decode_stream(wire.encode_stream(under_way), where="here") == under_way


def test_ledgers_are_sorted() -> None:
    data = wire.encode_stream(StreamInfo((StreamLedger(9), StreamLedger(2))))
    assert [each.ledger for each in wire.decode_stream(data, where="here").ledgers] == [2, 9]


def compressed(how: int, size: int, body: bytes) -> bytes:
    info = b"\x08%c\x10" % how + size.to_bytes(1, "big")
    return b"\x47\x78" + len(info).to_bytes(4, "big") + info + body


DAMAGED = {
    "no protobuf": b"hello",
    "no ledger id": b"\x0a\x02\x20\x00",
    "negative ledger": b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01",
    "twice": wire.encode_stream(StreamInfo((StreamLedger(2), StreamLedger(2)))),
    "not UTF-8": b"\x1a\x06\x0a\x01\xff\x12\x01\xff",
    "offload": b"\x0a\x06\x08\x01\x2a\x02\x1a\x07",
    "cut off": b"\x47\x78\x00",
    "how it is compressed is newer": compressed(9, 4, b"1234"),
    "longer than announced": compressed(2, 4, zlib.compress(b"12345")),
    "damaged": compressed(2, 4, b"123456"),
    "nothing announced": b"\x47\x78\x00\x00\x00\x02\x08\x02",
    "too long": b"\x47\x78\x00\x00\x00\x08\x08\x02\x10\x80\x80\x80\x80\x01",
    "negative": b"\x47\x78\x00\x00\x00\x0d\x08\x02\x10" + b"\xff" * 9 + b"\x01",
    "plain and too long": b"\x1a" + bytes(wire.LONGEST),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_bytes_that_are_no_list(data: bytes) -> None:
    with pytest.raises(MetadataError, match=r"no list of ledgers .*nothing was changed.*where=here"):
        wire.decode_stream(data, where="here")


@pytest.mark.parametrize("data", [b"", b"hello", b"\x08\x01\x22\x00"], ids=["empty", "foreign", "half a range"])
def test_bytes_that_are_no_cursor(data: bytes) -> None:
    with pytest.raises(MetadataError, match=r"no cursor .*nothing was changed.*where=here"):
        decode_cursor(data, where="here")
    with pytest.raises(MetadataError, match=r"no state of a cursor .*where=here"):
        decode_cursor_state(data, where="here")


def test_a_compressed_cursor_is_read() -> None:
    plain = encode_cursor(CursorInfo(-1, CursorState(Position(3, 4))))
    for how in Compression:
        body = compress(plain, how)
        found = decode_cursor(compressed(how.value, len(plain), body), where="here")
        assert found.state == CursorState(Position(3, 4))


def state_of(*ranges: tuple[int, int, int, int]) -> CursorState:
    return CursorState(Position(1, 0), tuple(AckedRange(Position(a, b), Position(c, d)) for a, b, c, d in ranges))


@pytest.mark.parametrize(
    "state", [state_of((1, 2, 2, 3)), state_of((2**40, -1, 2**40, 2**40))], ids=["two ledgers", "far away"]
)
def test_what_bitmaps_cannot_say_is_stored_as_ranges(state: CursorState) -> None:
    data = wire.encode_cursor_state(state)
    assert len(data) < 60 and decode_cursor_state(data, where="here") == state


def test_a_range_without_an_entry_is_refused() -> None:
    data = encode_cursor(CursorInfo(-1, state_of((1, 2, 1, 2))))
    with pytest.raises(MetadataError, match="nothing is after 1:2 and up to 1:2"):
        decode_cursor(data, where="here")


def test_a_cursor_has_only_so_many_ranges() -> None:
    message = PositionInfo(ledgerId=1, entryId=0)
    for ledger in (1, 2):
        message.individualDeletedMessageRanges.add(key=ledger, values=[0x5555555555555555] * 1030)
    with pytest.raises(MetadataError, match="too many ranges"):
        decode_cursor_state(message.SerializeToString(), where="here")


@pytest.mark.parametrize(
    "info",
    [
        StreamInfo((StreamLedger(2**63),)),
        StreamInfo((StreamLedger(1, entries=-(2**64)),)),
        StreamInfo(properties={"k": 7}),  # type: ignore[dict-item]
        StreamInfo(unknown=b"\x0a"),
    ],
)
def test_what_the_format_cannot_hold(info: StreamInfo) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        wire.encode_stream(info)


def test_a_cursor_that_the_format_cannot_hold() -> None:
    state = CursorState(Position(2**63, 0))
    with pytest.raises(UsageError, match="cannot be stored"):
        encode_cursor(CursorInfo(1, state))
    with pytest.raises(UsageError, match="cannot be stored"):
        wire.encode_cursor_state(state)


def test_a_list_without_times() -> None:
    """So early versions wrote it."""
    message = ManagedLedgerInfo()
    message.ledgerInfo.add(ledgerId=1, entries=2, size=3)
    assert wire.decode_stream(message.SerializeToString(), where="here").ledgers == (StreamLedger(1, 2, 3),)


# -- in steps ----------------------------------------------------------------------------------------------------------


def test_what_much_is_acknowledged_of_is_encoded_and_decoded_in_steps() -> None:
    acked = tuple(AckedRange(Position(1, 2 * each), Position(1, 2 * each + 1)) for each in range(10_000))
    batches = {Position(2, each): (1 << 63, 5) for each in range(5_000)}
    state = CursorState(Position(1, -1), acked, batches)
    info, steps = CursorInfo(-1, state), 10_000 // wire.STEP_RANGES
    assert sum(1 for _ in wire.cursor_encoding(info)) == steps + 5_000 // wire.STEP_RANGES
    in_node, in_ledger = encode_cursor(info), wire.encode_cursor_state(state)
    assert sum(1 for _ in wire.cursor_decoding(in_node, where="")) > steps
    assert sum(1 for _ in wire.cursor_state_decoding(in_ledger, where="")) >= 5
    assert decode_cursor(in_node, where="") == info
    assert decode_cursor_state(in_ledger, where="") == state


def test_a_run_goes_on_over_steps() -> None:
    long = AckedRange(Position(1, 3), Position(1, 3 * 64 * wire.STEP_WORDS))
    state = CursorState(Position(1, 1), (long, AckedRange(Position(2, -1), Position(2, 0))))
    assert decode_cursor_state(wire.encode_cursor_state(state), where="") == state


def test_bitmaps_are_bounded() -> None:
    message = PositionInfo(ledgerId=1, entryId=1)
    message.individualDeletedMessageRanges.add(key=1, values=[0] * (wire.MOST_BITMAP_WORDS + 1))
    with pytest.raises(MetadataError, match="too many ranges"):
        decode_cursor_state(message.SerializeToString(), where="")
    message = PositionInfo(ledgerId=1, entryId=1)
    words, position = [0] * (wire.MOST_BATCH_WORDS + 1), NestedPositionInfo(ledgerId=1, entryId=1)
    message.batchedEntryDeletionIndexInfo.add(deleteSet=words, position=position)
    with pytest.raises(MetadataError, match="a batch of more than"):
        decode_cursor_state(message.SerializeToString(), where="")
