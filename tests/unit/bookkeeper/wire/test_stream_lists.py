"""Long lists of ledgers, decoded in steps and in part."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.bookkeeper.wire import stream_lists
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.managed_ledgers import decode_stream, encode_stream, plain_stream
from tallystick.bookkeeper.wire.stream_lists import RUN_LEDGERS, ListCodec
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.codec.steps import finished
from tallystick.errors import MetadataError


def ledgers(first: int, last: int) -> tuple[StreamLedger, ...]:
    """Closed ledgers, and an open one."""
    closed = (StreamLedger(id, 50_000, 1_000_000 + id, 1_790_000_000_000 + id) for id in range(first, last))
    return (*closed, StreamLedger(last, has_counts=False))


def decode(decoder: ListCodec, data: bytes) -> StreamInfo:
    return finished(decoder.decoding(data, where="here"))


LEDGER = st.builds(
    StreamLedger,
    st.integers(1, 9),  # the distance to the one before
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 60),
    st.integers(0, 1 << 42),
    properties=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=1),
)


@given(st.data())
def test_what_is_decoded_again_in_part_is_what_is_decoded_whole(data: st.DataObject) -> None:
    decoder, encoder, kept = ListCodec(), ListCodec(), tuple[StreamLedger, ...]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_lists, "RUN_LEDGERS", 3)
        patch.setattr(stream_lists, "COMPRESSED_BEYOND", 0)  # short ones are decoded whole
        for _ in range(4):
            kept = kept[data.draw(st.integers(0, len(kept))) :]
            kept = kept[: len(kept) - data.draw(st.integers(0, 2))]
            new = data.draw(st.lists(LEDGER, max_size=8))
            ids = accumulate((each.ledger for each in new), initial=kept[-1].ledger if kept else 0)
            kept += tuple(
                StreamLedger(id, each.entries, each.size, each.timestamp_ms, properties=each.properties)
                for id, each in zip(list(ids)[1:], new, strict=True)
            )
            terminated = data.draw(st.none() | st.just(Position(7, 8)))
            info = StreamInfo(kept, terminated, data.draw(st.dictionaries(st.text(max_size=2), st.text(max_size=2))))
            encoded = encode_stream(info)
            assert decode(decoder, encoded) == decode_stream(encoded, where="here") == info
            for codec in (encoder, decoder):  # what encoded the list before, and what decoded it now
                assert decode_stream(finished(codec.encoding(info)), where="here") == info


def test_ten_thousand_ledgers_take_many_steps() -> None:
    encoded = encode_stream(StreamInfo(ledgers(0, 9_999)))
    assert sum(1 for _ in ListCodec().decoding(encoded, where="here")) == 10_000 // RUN_LEDGERS


def test_very_many_ledgers_are_encoded_and_compressed_in_steps() -> None:
    info = StreamInfo(ledgers(0, 99_999), properties={"a": "b"})
    codec, size = ListCodec(), len(encode_stream(info, compression=Compression.NONE))
    compressed = -(-size // stream_lists.COMPRESSED_A_STEP)
    assert sum(1 for _ in codec.encoding(info)) == -(-100_000 // RUN_LEDGERS) + compressed
    assert sum(1 for _ in codec.encoding(info)) == compressed
    assert decode_stream(finished(codec.encoding(info)), where="here") == info


def test_what_did_not_change_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, encoded = ListCodec(), list[int]()

    def counting(info: StreamInfo) -> bytes:
        encoded.append(len(info.ledgers))
        return plain_stream(info)

    before = decode(codec, encode_stream(StreamInfo(ledgers(0, 9_999))))
    monkeypatch.setattr(stream_lists, "plain_stream", counting)
    for first in (0, 1, 1_000):  # rolled over, or trimmed
        info = StreamInfo((*before.ledgers[first:-1], *ledgers(9_999, 10_000)))
        assert decode_stream(finished(codec.encoding(info)), where="here") == info
    assert sum(encoded) < 6 * RUN_LEDGERS


def test_what_did_not_change_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, decoded = ListCodec(), list[int]()

    def counting(data: bytes, *, where: str) -> StreamInfo:
        decoded.append(len(data))
        return decode_stream(data, where=where)

    before = decode(decoder, encode_stream(StreamInfo(ledgers(0, 9_999))))
    monkeypatch.setattr(stream_lists, "decode_stream", counting)
    after = decode(decoder, encode_stream(StreamInfo(ledgers(1_000, 10_000))))
    assert sum(decoded) < 60 * RUN_LEDGERS  # of 250,000 bytes
    assert after.ledgers[0] == before.ledgers[1_000] and after.ledgers[5_000] is before.ledgers[6_000]


def test_a_list_that_is_out_of_order_is_sorted_as_pulsar_does() -> None:
    parts = [plain_stream(StreamInfo(ledgers(id, id + 500))) for id in (5000, 3000)]
    info = decode(ListCodec(), b"".join(parts))
    assert info == decode_stream(b"".join(parts), where="here")
    assert [each.ledger for each in info.ledgers] == [*range(3000, 3501), *range(5000, 5501)]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 11,  # no tag
        b"\x0a\x7f\x08\x01",  # it is longer than the rest
        b"\x0a\x00",  # a ledger without an id
        encode_stream(StreamInfo((StreamLedger(3),))) * 2,
        plain_stream(StreamInfo(ledgers(0, 500))) * 2,
        b"\x47\x78\x00\x00\x00\x01",
        b"\x47\x78\x00\x00\x00\x04\x08\x02\x10\x05" + b"xxxxx",
    ],
)
def test_damaged_bytes(data: bytes) -> None:
    decoder = ListCodec()
    with pytest.raises(MetadataError) as whole:
        decode_stream(data, where="here")
    with pytest.raises(MetadataError) as stepwise:
        decode(decoder, data)
    assert (stepwise.value.message, stepwise.value.fields) == (whole.value.message, whole.value.fields)
    assert decode(decoder, b"") == StreamInfo()


@pytest.mark.parametrize("compression", Compression)
def test_every_compression(compression: Compression) -> None:
    info = StreamInfo(ledgers(0, 1_000), properties={"a": "b"})
    assert decode(ListCodec(), encode_stream(info, compression=compression)) == info


@pytest.mark.parametrize("group", [b"", b"\x0b\x0c"])  # which nobody writes
def test_fields_of_a_newer_version_are_kept(group: bytes) -> None:
    info = StreamInfo(ledgers(0, 3), unknown=group + b"\x98\x06\x01\xa5\x06abcd\xa1\x06abcdefgh\xaa\x06\x02xy")
    encoded = encode_stream(info)
    assert decode(ListCodec(), encoded) == decode_stream(encoded, where="here") == info


VALID = [
    encode_stream(StreamInfo(ledgers(0, 5), Position(3, 4), {"a": "b"})),
    encode_stream(StreamInfo(ledgers(0, 1_000))),
]


@given(st.sampled_from(VALID), st.integers(0, 1 << 16), st.binary(max_size=6), st.integers(0, 6))
def test_whatever_the_bytes_are_the_outcome_is_that_of_decoding_them_whole(
    valid: bytes, at: int, put: bytes, cut: int
) -> None:
    at %= len(valid)
    data, decoder = valid[:at] + put + valid[at + cut :], ListCodec()
    decode(decoder, valid)
    try:
        expected = decode_stream(data, where="here")
    except MetadataError:
        with pytest.raises(MetadataError):
            decode(decoder, data)
    else:
        assert decode(decoder, data) == expected
    assert decode(decoder, valid) == decode_stream(valid, where="here")
