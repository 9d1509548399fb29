"""Long lists of ledgers: judged as a whole, decoded in part, and again only where they changed."""

from __future__ import annotations

import contextlib
import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import ledger_runs, stream_lists
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.ledger_runs import (
    RUN_LEDGERS,
    LedgerList,
    changed,
    find,
    ids_of,
    joined,
    total_size,
    unusual,
)
from tallystick.bookkeeper.wire.managed_ledgers import decode_stream, encode_stream, plain_stream
from tallystick.bookkeeper.wire.stream_lists import list_decoding, list_encoding
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.codec.steps import finished
from tallystick.errors import MetadataError


def ledgers(first: int, last: int) -> tuple[StreamLedger, ...]:
    """Closed ledgers, and an open one."""
    closed = (StreamLedger(id, 50_000, 1_000_000 + id, 1_790_000_000_000 + id) for id in range(first, last))
    return (*closed, StreamLedger(last, has_counts=False))


def decode(data: bytes, known: Sequence[StreamLedger] = ()) -> StreamInfo:
    return finished(list_decoding(data, where="here", known=known))


def long_list(info: StreamInfo) -> LedgerList:
    assert isinstance(info.ledgers, LedgerList)
    return info.ledgers


LEDGER = st.builds(
    StreamLedger,
    st.integers(1, 9),  # the distance to the one before
    st.integers(0, 3) | st.integers(0, 1 << 40),
    st.integers(0, 1 << 60),
    st.sampled_from([0, 1_790_000_000_000]) | st.integers(0, 1 << 42),
    has_counts=st.just(True),
    offload=st.just(b""),
    is_offloaded=st.just(False),
    properties=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=1),
    unknown=st.sampled_from([b"", b"", b"\x98\x06\x01", b"\xaa\x06\x02xy"]),
)


@pytest.fixture
def all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few ledgers are treated as those of thousands are."""
    for module in (ledger_runs, stream_lists):
        monkeypatch.setattr(module, "RUN_LEDGERS", 3)
    monkeypatch.setattr(stream_lists, "COMPRESSED_BEYOND", 0)


def grown(data: st.DataObject, kept: Sequence[StreamLedger]) -> tuple[StreamLedger, ...]:
    new = data.draw(st.lists(LEDGER, max_size=8))
    ids = list(accumulate((each.ledger for each in new), initial=kept[-1].ledger if kept else 0))[1:]
    return tuple(each._replace(ledger=id) for id, each in zip(ids, new, strict=True))


@pytest.mark.usefixtures("all_are_long")
@given(st.data())
def test_what_is_decoded_in_part_is_what_is_decoded_whole(data: st.DataObject) -> None:
    kept, known = tuple[StreamLedger, ...](), StreamInfo()
    for _ in range(4):
        kept = kept[data.draw(st.integers(0, len(kept))) :]
        kept = kept[: len(kept) - data.draw(st.integers(0, 2))]
        kept += grown(data, kept)
        terminated = data.draw(st.none() | st.just(Position(7, 8)))
        properties = data.draw(st.dictionaries(st.text(max_size=2), st.text(max_size=2)))
        info = StreamInfo(kept, terminated, properties, data.draw(st.sampled_from([b"", b"\x98\x06\x01"])))
        encoded = encode_stream(info)
        whole, known = decode_stream(encoded, where="here"), decode(encoded, known.ledgers)
        assert whole == info
        assert (known, tuple(known.ledgers)) == (info, info.ledgers)
        for each in (info, known):
            assert decode_stream(finished(list_encoding(each)), where="here") == info


@pytest.mark.usefixtures("all_are_long")
@given(st.data())
def test_what_is_made_of_a_long_list_is_what_is_made_of_a_tuple(data: st.DataObject) -> None:
    short = grown(data, ())
    known = decode(encode_stream(StreamInfo(short))).ledgers
    for _ in range(5):
        new = grown(data, short)
        short, known = short + new, joined(known, new)
        ends: dict[int, StreamLedger | None] = {
            each.ledger: data.draw(st.none() | st.just(each._replace(entries=7, timestamp_ms=8, has_counts=True)))
            for each in data.draw(st.lists(st.sampled_from(short), max_size=3) if short else st.just([]))
        }
        short = tuple(ends.get(each.ledger, each) or each for each in short if ends.get(each.ledger, each) is not None)
        known = changed(known, ends)
        assert known == short and short == known and len(known) == len(short)
        assert [known[at] for at in range(-len(short), len(short))] == [*short, *short]
        first, last = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
        assert known[first:last] == short[first:last]
        ids = [each.ledger for each in short]
        assert sorted(ids_of(known)) == ids and total_size(known) == sum(each.size for each in short)
        for id in range(max(ids, default=0) + 2):
            assert bisect_left(known, id, key=attrgetter("ledger")) == bisect_left(ids, id)
            assert find(known, id) == next((each for each in short if each.ledger == id), None)
        rare = list(unusual(known))
        assert [each for each in rare if not (each.is_closed and each.entries)] == [
            each for each in short if not (each.is_closed and each.entries)
        ]
        assert decode_stream(finished(list_encoding(StreamInfo(known))), where="here").ledgers == short
        if short:
            assert known != (*short[:-1], short[-1]._replace(size=short[-1].size + 1))
            assert known != short[1:]


@pytest.mark.usefixtures("all_are_long")
def test_lists_with_the_same_runs_and_another_end_are_not_the_same() -> None:
    """An owner stores no list that is what it has."""
    known = long_list(decode(encode_stream(StreamInfo(ledgers(0, 9)))))
    longer = joined(known, [StreamLedger(10, has_counts=False)])
    closed = changed(known, {9: StreamLedger(9, 1, 1, 1)})
    assert {long_list(StreamInfo(each)).runs for each in (longer, closed)} == {known.runs}
    assert known == joined(known, []) and known not in (longer, closed) and longer != closed
    assert changed(known, {9: None}) != known


def test_very_many_that_are_joined_become_runs() -> None:
    for count in (0, 1, RUN_LEDGERS - 1, RUN_LEDGERS, RUN_LEDGERS + 1, 3 * RUN_LEDGERS):
        for before in (0, 1, RUN_LEDGERS, RUN_LEDGERS + 1):
            all_of_them = ledgers(0, before + count)[:-1]
            made = joined(joined((), all_of_them[:before]), all_of_them[before:])
            assert made == all_of_them
            runs, tail = (made.runs, made.tail) if isinstance(made, LedgerList) else ((), made)
            assert {len(run.ledgers) for run in runs} <= {RUN_LEDGERS} and len(tail) <= RUN_LEDGERS


@pytest.mark.usefixtures("all_are_long")
def test_an_index_beyond_a_list_is_an_error() -> None:
    known = decode(encode_stream(StreamInfo(ledgers(0, 9)))).ledgers
    for at in (10, -11):
        with pytest.raises(IndexError):
            known[at]


def test_ten_thousand_ledgers_take_many_steps() -> None:
    encoded = encode_stream(StreamInfo(ledgers(0, 9_999)))
    assert sum(1 for _ in list_decoding(encoded, where="here")) == -(-9_999 // RUN_LEDGERS)


def test_of_ten_thousand_ledgers_none_but_the_newest_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[int]()

    def counting(fields: bytes) -> list[StreamLedger]:
        decoded.append(len(fields))
        return []

    monkeypatch.setattr(stream_lists, "decoded_ledgers", counting)
    info = decode(encode_stream(StreamInfo(ledgers(0, 9_999))))
    assert sum(decoded) < 20 and len(info.ledgers) == 9_999
    assert list(unusual(info.ledgers)) == []


def test_very_many_ledgers_are_encoded_and_compressed_in_steps() -> None:
    info = StreamInfo(ledgers(0, 99_999), properties={"a": "b"})
    runs = -(-100_000 // RUN_LEDGERS)
    encoding = list_encoding(info)
    assert sum(1 for _ in encoding) == 2 * runs  # encoded, and compressed
    again = decode(finished(list_encoding(info)))
    assert again == info
    assert sum(1 for _ in list_encoding(again)) == runs
    assert sum(1 for _ in list_encoding(again)) == 0
    assert all(run.deflated is run.deflated for run in long_list(again).runs), "it is compressed once"


def test_what_did_not_change_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = list[int]()

    def counting(info: StreamInfo) -> bytes:
        encoded.append(len(info.ledgers))
        return plain_stream(info)

    info = decode(encode_stream(StreamInfo(ledgers(0, 9_999))))
    for module in (ledger_runs, stream_lists):
        monkeypatch.setattr(module, "plain_stream", counting)
    for first in (0, 1, 1_000):  # rolled over, or trimmed
        newest = info.ledgers[-1]
        kept = changed(info.ledgers, {newest.ledger: newest._replace(entries=1, timestamp_ms=1, has_counts=True)})
        kept = changed(kept, dict.fromkeys(range(first)))
        info = StreamInfo(joined(kept, [StreamLedger(newest.ledger + 1, has_counts=False)]))
        assert decode_stream(finished(list_encoding(info)), where="here") == info
    assert sum(encoded) < 4 * RUN_LEDGERS


def test_what_did_not_change_is_not_judged_again() -> None:
    before = long_list(decode(encode_stream(StreamInfo(ledgers(0, 9_999)))))
    after = long_list(decode(encode_stream(StreamInfo(ledgers(1_000, 10_000))), before))
    assert after == ledgers(1_000, 10_000)
    assert set(before.runs[2:-1]) < set(after.runs) and len(after.runs) <= len(before.runs) + 1


def test_runs_do_not_become_more_by_being_read() -> None:
    """A sink reads the list before each commit, which adds a ledger."""
    info, rng = decode(encode_stream(StreamInfo(ledgers(0, 1_500)[:-1]))), random.Random(5)
    for last in range(1_500, 3_000):
        info = replace_newest(info, StreamLedger(last, rng.randrange(1, 500), rng.randrange(1 << 20), 1))
        info = decode(finished(list_encoding(info)), info.ledgers)
    assert len(long_list(info).runs) <= 3_000 // RUN_LEDGERS + 1


def replace_newest(info: StreamInfo, added: StreamLedger) -> StreamInfo:
    return StreamInfo(joined(info.ledgers, [added]))


def test_a_list_that_is_out_of_order_is_sorted_as_pulsar_does() -> None:
    parts = [plain_stream(StreamInfo(ledgers(id, id + 500))) for id in (5000, 3000)]
    info = decode(b"".join(parts))
    assert info == decode_stream(b"".join(parts), where="here")
    assert [each.ledger for each in info.ledgers] == [*range(3000, 3501), *range(5000, 5501)]
    mixed = [*ledgers(0, 2_000)[:-1]]
    random.Random(3).shuffle(mixed)
    assert [each.ledger for each in decode(plain_stream(StreamInfo(tuple(mixed)))).ledgers] == list(range(2_000))


def test_runs_that_change_places_are_sorted() -> None:
    late, early = ledgers(5_000, 5_000 + RUN_LEDGERS)[:-1], ledgers(3_000, 3_000 + RUN_LEDGERS)
    data = plain_stream(StreamInfo((*late, *early)))
    assert decode(data).ledgers == (*early, *late)
    known = long_list(decode(plain_stream(StreamInfo((*early, *late)))))
    assert decode(data, known).ledgers == (*early, *late)


def test_neighbours_that_change_places_are_sorted() -> None:
    first, second, *others = ledgers(0, 2_000)
    info = decode(plain_stream(StreamInfo((second, first, *others))))
    assert info.ledgers == ledgers(0, 2_000)


def test_what_looks_like_a_known_run_within_a_field_is_none() -> None:
    known = long_list(decode(encode_stream(StreamInfo(ledgers(0, 2_000)))))
    run = known.runs[0].data
    info = StreamInfo(ledgers(5_000, 6_000), unknown=b"\xaa\x06" + varint(len(run)) + run)
    data = plain_stream(info)
    assert run in data
    assert decode(data, known) == decode_stream(data, where="here") == info


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7])  # of two bytes


PLAIN = plain_stream(StreamInfo(ledgers(0, 2_000)))
RUN_END = plain_stream(StreamInfo(ledgers(RUN_LEDGERS - 1, RUN_LEDGERS)[:-1]))  # the last ledger of its first run
NEGATIVE_SIZE = b"\x0a\x11\x08\x00\x10\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01"  # of ledger 0
RECORD = b"\x0a\x09\x08\x07\x10\x01\x18\x05\x20\x96\x01"  # of ledger 7


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 11,  # no tag
        b"\x0a\x7f\x08\x01",  # it is longer than the rest
        b"\x0a\x00",  # a ledger without an id
        encode_stream(StreamInfo((StreamLedger(3),))) * 2,
        PLAIN * 2,
        b"\x47\x78\x00\x00\x00\x01",
        b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x05" + b"xxxxx",
        PLAIN + b"\x0a\x00",
        b"\x0a\x00" + PLAIN,
        PLAIN[:-1],
        PLAIN.replace(RUN_END, RUN_END * 2),  # at the end of a run, and behind it
        NEGATIVE_SIZE + plain_stream(StreamInfo(ledgers(1, 2_000))),
        PLAIN + b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a negative id
        b"\x0a\x0d\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + PLAIN,  # and a negative count
    ],
)
def test_damaged_bytes(data: bytes) -> None:
    with pytest.raises(MetadataError) as whole:
        decode_stream(data, where="here")
    with pytest.raises(MetadataError) as stepwise:
        decode(data)
    assert (stepwise.value.message, stepwise.value.fields) == (whole.value.message, whole.value.fields)
    assert decode(b"") == StreamInfo()


@pytest.mark.parametrize(
    "records",
    [
        [RECORD[2:], RECORD[2:] + b"\x00\x01"],
        [b"\x08\x80", b"\x10\x01\x18\x05\x20\x96\x01", RECORD[2:] + b"\x00" + RECORD[2:]],
        [RECORD[2:-1] + b"\x80", b"\x00" + RECORD[2:]],
        [RECORD[2:], RECORD[2:]],  # twice
        [RECORD[2:], RECORD[2:].replace(b"\x07", b"\x06")],  # not ascending
        [RECORD[2:].replace(b"\x10\x01", b"\x10\x00")],  # empty
        [RECORD[2:-2] + b"\x00"],  # open
        [RECORD[2:-2] + b"\x80\x00"],  # and that in a byte too many
        [NEGATIVE_SIZE[2:]],
        [b""],
    ],
)
def test_records_that_are_not_plain(records: list[bytes]) -> None:
    assert ledger_runs.PlainLedgers.of(records) is None


def test_two_ledgers_in_one_record_are_damage() -> None:
    with pytest.raises(DecodeError):
        ledger_runs.PlainLedgers.of([RECORD[2:] + b"\x00\x01" + RECORD[2:].replace(b"\x07", b"\x08")])


@pytest.mark.usefixtures("all_are_long")
@given(st.lists(st.integers(0, len(RECORD)), max_size=3), st.binary(max_size=12), st.integers(0, 3))
def test_records_that_are_cut_at_any_place_are_never_plain(cuts: list[int], other: bytes, at: int) -> None:
    """Neighbours that are halves of a ledger each would be two whole ones if they were only looked at together."""
    record = RECORD[2:]
    places = sorted(min(cut, len(record)) for cut in cuts)
    halves = [record[first:last] for first, last in zip([0, *places], [*places, len(record)], strict=True)]
    records = [*halves[:at], other, *halves[at:]]
    with contextlib.suppress(DecodeError):
        plain = ledger_runs.PlainLedgers.of(records)
        if plain is None:
            return
        fields = b"".join(b"\x0a" + bytes([len(each)]) + each for each in records)
        assert tuple(plain) == decode_stream(fields, where="here").ledgers


@pytest.mark.parametrize("compression", Compression)
def test_every_compression(compression: Compression) -> None:
    info = StreamInfo(ledgers(0, 1_000), properties={"a": "b"})
    assert decode(encode_stream(info, compression=compression)) == info


@pytest.mark.parametrize("group", [b"", b"\x0b\x0c"])  # which nobody writes
@pytest.mark.parametrize("last", [3, 3_000])
def test_fields_of_a_newer_version_are_kept(group: bytes, last: int) -> None:
    unknown = group + b"\x98\x06\x01\xa5\x06abcd\xa1\x06abcdefgh\xaa\x06\x02xy"
    info = StreamInfo((*ledgers(0, last)[:-1], StreamLedger(last, unknown=b"\x98\x06\x02")), unknown=unknown)
    encoded = encode_stream(info)
    assert decode(encoded) == decode_stream(encoded, where="here") == info
    assert decode_stream(finished(list_encoding(decode(encoded))), where="here") == info


VALID = [
    encode_stream(StreamInfo(ledgers(0, 5), Position(3, 4), {"a": "b"})),
    plain_stream(StreamInfo(ledgers(0, 20))),
    encode_stream(StreamInfo(ledgers(0, 800))),
]


@pytest.mark.usefixtures("all_are_long")
@given(st.sampled_from(VALID), st.integers(0, 1 << 16), st.binary(max_size=6), st.integers(0, 6))
def test_whatever_the_bytes_are_the_outcome_is_that_of_decoding_them_whole(
    valid: bytes, at: int, put: bytes, cut: int
) -> None:
    at %= len(valid)
    data, known = valid[:at] + put + valid[at + cut :], decode(valid).ledgers
    try:
        expected = decode_stream(data, where="here")
    except MetadataError:
        for before in ((), known):
            with pytest.raises(MetadataError):
                decode(data, before)
    else:
        for before in ((), known):
            info = decode(data, before)
            assert info == expected
            assert decode_stream(finished(list_encoding(info)), where="here") == expected
