"""Messages that came in chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from support.listed_streams import NAME, chunk_entries
from support.small_cluster import SmallCluster
from support.streams import RAW
from tallystick.bookkeeper.stream import chunks, cursors, reader
from tallystick.bookkeeper.stream.chunks import ChunksCore, Joined, KeptChunks, Scattered, _Begun
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.entries import EntryWalk, LedgerGone
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import Chunk, InMessage
from tallystick.bookkeeper.wire.stream_values import NO_PROPERTIES, Position
from tallystick.errors import CorruptEntry, NoSuchEntry

LONG = b"%d" + b"x" * 79


class Arriving:
    """Gives a core chunks of two bytes, one an entry."""

    def __init__(self, max_bytes: int = 1000, kept: KeptChunks | None = None) -> None:
        self.core, self.entry = ChunksCore(max_bytes, kept), -1

    def __call__(
        self, uuid: str, index: int, data: bytes | None = None, count: int = 3, total: int = 6, producer: str = "p"
    ) -> Joined | Scattered | None:
        self.entry += 1
        self.core.passed()
        data = uuid.encode() + str(index).encode() if data is None else data
        chunk = Chunk(uuid, index, count, total, Compression.NONE, total)
        message = InMessage(Position(1, self.entry), data, None, NO_PROPERTIES, 0, None, producer, 0, chunk=chunk)
        return self.core.arrived(message, chunk)

    def all(self, *names: tuple[str, int], **fields: Any) -> list[Joined | Scattered | None]:
        return [self(*name, **fields) for name in names]


@pytest.fixture
def arriving() -> Arriving:
    return Arriving()


def places(*entries: int) -> tuple[Position, ...]:
    return tuple(Position(1, entry) for entry in entries)


def whole(data: bytes, positions: tuple[Position, ...]) -> Joined:
    """A message of chunks of two bytes."""
    return Joined(tuple(data[at : at + 2] for at in range(0, len(data), 2)), positions)


def test_chunks_are_joined_in_order(arriving: Arriving) -> None:
    assert arriving.all(("a", 0), ("a", 1), ("a", 2)) == [None, None, whole(b"a0a1a2", places(0, 1))]
    assert arriving.core.take_dropped() == []


def test_producers_may_interleave(arriving: Arriving) -> None:
    joined = arriving.all(("a", 0), ("b", 0), ("b", 1), ("a", 1), ("b", 2), ("a", 2))
    assert joined == [None] * 4 + [whole(b"b0b1b2", places(1, 2)), whole(b"a0a1a2", places(0, 3))]


def test_one_uuid_of_two_producers(arriving: Arriving) -> None:
    assert [arriving("a", index, producer=producer) for index in range(2) for producer in "pq"] == [None] * 4
    assert arriving("a", 2, producer="q") == whole(b"a0a1a2", places(1, 3))


@pytest.mark.parametrize("indexes", [(0, 0, 1, 2), (0, 1, 0, 1, 2), (0, 1, 1, 2), (0, 1, 0, 1, 0, 1, 2)])
def test_what_is_sent_again_counts_once(arriving: Arriving, indexes: tuple[int, ...]) -> None:
    """And all of it is the message's, so that it can be acknowledged."""
    *before, last = [arriving("a", index) for index in indexes]
    assert before == [None] * (len(indexes) - 1)
    assert last == whole(b"a0a1a2", places(*range(len(indexes) - 1)))
    assert arriving.core.take_dropped() == []


def test_a_message_whose_beginning_was_not_read(arriving: Arriving) -> None:
    assert arriving.all(("a", 1), ("a", 2), ("a", 0)) == [None] * 3
    assert arriving.core.take_dropped() == [] and arriving.core.first == Position(1, 2)
    assert arriving.core.take_strays() == [*places(0, 1)] and arriving.core.take_strays() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"index": 2},  # one lacks
        {"index": 1, "count": 4},
        {"index": 1, "total": 7},
        {"index": 1, "data": b"too long"},
    ],
)
def test_chunks_that_do_not_belong_together(arriving: Arriving, wrong: dict[str, Any]) -> None:
    arriving("a", 0)
    assert arriving("a", **wrong) is None
    assert arriving.core.take_dropped() == [places(0, 1)] and arriving.core.take_dropped() == []
    assert arriving("a", 2) is None and arriving.core.take_strays() == [*places(2)]


def test_of_what_is_begun_the_bytes_are_bounded_and_none_is_given_up() -> None:
    arriving = Arriving(max_bytes=6)
    arriving.all(("a", 0), ("b", 0), ("c", 0))
    assert arriving.core.kept_bytes == 6
    arriving("b", 1)
    assert arriving.core.kept_bytes == 6, "those of the oldest are gone"
    assert arriving("b", 2) == whole(b"b0b1b2", places(1, 3))
    assert arriving.all(("a", 1), ("a", 1), ("a", 2))[2] == Scattered(places(0, 5, 7), places(0, 5, 6))
    assert arriving.all(("c", 1), ("c", 2))[1] == whole(b"c0c1c2", places(2, 8))
    assert arriving.core.take_dropped() == [] and arriving.core.first is None
    assert arriving.core.kept_bytes == arriving.core._chunks == 0 and not arriving.core._kept


def test_what_is_sent_again_from_its_first_chunk_on_is_kept_again() -> None:
    arriving = Arriving(max_bytes=6)
    arriving.all(("a", 0), ("b", 0), ("b", 1), ("c", 0))
    assert arriving.all(("b", 2), ("c", 1), ("a", 0), ("a", 1))[0] == whole(b"b0b1b2", places(1, 2))
    assert arriving("c", 2) == Scattered(places(3, 5, 8), places(3, 5))
    assert arriving("a", 2) == whole(b"a0a1a2", places(0, 6, 7)) and arriving.core.kept_bytes == 0


def test_readings_of_a_client_keep_so_much_together() -> None:
    """Each kept as much as a message may have, 128 MiB, however many there were."""
    kept = KeptChunks(8)
    first, second, third = (Arriving(kept=kept) for _ in range(3))
    first.all(("a", 0), ("b", 0))
    second.all(("a", 0), ("a", 1))
    assert kept.bytes == first.core.kept_bytes + second.core.kept_bytes == 8
    first("b", 1)
    assert (first.core.kept_bytes, second.core.kept_bytes, kept.bytes) == (6, 0, 6), "the first got a chunk later"
    third.all(("a", 0), ("a", 1))
    assert (first.core.kept_bytes, kept.bytes) == (4, 8), "its oldest message"
    assert second("a", 2) == Scattered(places(0, 1, 2), places(0, 1))
    assert third("a", 2) == whole(b"a0a1a2", places(0, 1)) and kept.bytes == 4
    assert first("b", 2) == whole(b"b0b1b2", places(1, 2)) and kept.bytes == 0
    third("c", 0)
    assert kept.bytes == 2
    del third
    assert kept.bytes == 0, "nobody reads it any more"


def test_a_message_that_has_more_than_all_readings_may_keep_comes() -> None:
    arriving = Arriving(kept=KeptChunks(3))
    assert arriving.all(("a", 0), ("a", 1), ("a", 2))[2] == Scattered(places(0, 1, 2), places(0, 1))


def test_what_is_begun_is_bounded_by_names() -> None:
    """A name may be as long as an entry, and its chunk empty."""
    arriving = Arriving(max_bytes=20)
    arriving.all(("a" * 9, 0), ("b" * 9, 0), data=b"")
    assert arriving.core.take_dropped() == []
    arriving("c" * 9, 0, data=b"")
    assert arriving.core.take_dropped() == [places(0)]
    arriving("d", 0, data=b"", producer="p" * 9)
    assert arriving.core.take_dropped() == [places(1)]
    arriving.all(*[("c" * 9, index) for index in (0, 1, 2)])
    arriving.all(*[("d", index) for index in (1, 2)], producer="p" * 9)
    assert arriving.core._letters == 0 and arriving.core.first is None


def test_names_as_long_as_entries_are_not_kept() -> None:
    """Sixty of 2 MB were 120 MB of each reader."""
    arriving, long = Arriving(1_000_000), "u" * 1_000_000
    arriving.all((long + "a", 0), (long + "b", 0), data=b"xx")
    arriving(long + "a", 1, b"yy", producer=long)  # of another producer
    assert arriving.core._letters < 1000 and arriving.core.take_strays() == list(places(2))
    arriving.all((long + "b", 1), (long + "a", 1), data=b"yy")
    assert arriving(long + "a", 2, b"zz") == whole(b"xxyyzz", places(0, 4))
    assert arriving(long + "b", 2, b"zz") == whole(b"xxyyzz", places(1, 3))


def test_what_is_begun_is_bounded_by_number(arriving: Arriving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MOST_MESSAGES", 2)
    arriving.all(("a", 0), ("b", 0), ("c", 0), ("d", 0))
    assert arriving.core.take_dropped() == [places(0), places(1)]


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
def test_what_is_sent_again_and_again_is_bounded(
    arriving: Arriving, monkeypatch: pytest.MonkeyPatch, indexes: tuple[int, ...]
) -> None:
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 4)
    arriving("b", 0)
    arriving.all(*[("a", index) for index in indexes * 4][:4])
    assert arriving.core.take_dropped() == [places(0)]
    arriving("a", indexes[-1])
    assert arriving.core.take_dropped() == [places(1, 2, 3, 4, 5)] and arriving.core._chunks == 0


def test_what_does_not_go_on_for_very_many_entries_is_given_up(
    arriving: Arriving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MOST_BEHIND", 10)
    arriving.all(("a", 0), ("b", 0), ("c", 0))
    for _ in range(7):
        arriving.core.passed()
    arriving("b", 1)
    assert arriving.core.take_dropped() == [places(0)]
    for _ in range(8):
        arriving.core.passed()
    assert arriving("b", 2) == whole(b"b0b1b2", places(1, 3))
    assert arriving.core.take_dropped() == [places(2)]


def test_an_entry_behind_which_one_is_given_up_does_not_look_at_all_that_are_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand were looked at for each entry: 512 of these, a turn, took 0.8 s."""
    arriving, looks = Arriving(1_000_000), 0

    class Looked(_Begun):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "read_at"
            return super().__getattribute__(name)

    monkeypatch.setattr(chunks, "_Begun", Looked)
    monkeypatch.setattr(chunks, "MOST_BEHIND", 2000)
    for number in range(900):
        arriving(f"m{number}", 0, b"xx")
    for number in range(0, 900, 2):  # from here on these are the newer ones
        arriving(f"m{number}", 1, b"xx")
    looks = 0
    for _ in range(3000):
        arriving.core.passed()
    assert arriving.core.take_dropped() == [places(number) for number in range(1, 900, 2)] + [
        places(number, 900 + number // 2) for number in range(0, 900, 2)
    ]
    assert looks < 3 * 3000


@pytest.fixture
async def long_ones(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> BookKeeper:
    """A stream with more at once than a reader keeps: of five messages in two chunks the first ones, then the others.
    Each ledger has three entries."""
    for module in (cursors, reader):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 120)
    bk = cluster.client()
    messages = [chunk_entries(LONG % number, 40, uuid=f"u{number}") for number in range(5)]
    async with bk.open_stream(NAME, settings=replace(RAW, max_entries_per_ledger=3)) as owner:
        for part in range(2):
            for entries in messages:
                await owner.append(entries[part])
    return bk


async def test_a_cursor_gets_each_of_very_many_long_messages_that_interleave(long_ones: BookKeeper) -> None:
    """Two producers of 70 MiB each were enough: chunks of the first were acknowledged, and nobody had got it."""
    async with long_ones.cursor(NAME, "billing") as cursor:
        got = [message async for message in until_idle(cursor)]
        assert [each.data for each in got] == [LONG % number for number in range(5)]
        await cursor.ack_batch(got)
        assert cursor.backlog == 0


async def test_a_reader_gets_each_of_very_many_long_messages_that_interleave(long_ones: BookKeeper) -> None:
    async with long_ones.read_stream(NAME) as stream:
        assert [message.data async for message in stream.read()] == [LONG % number for number in range(5)]


async def test_many_readers_and_cursors_that_keep_nearly_nothing_together_get_all(long_ones: BookKeeper) -> None:
    """They go on in turn, and one is left in the middle of a message."""
    kept = long_ones.stream_context.readers.decompressor.chunks_kept = KeptChunks(100)
    async with long_ones.read_stream(NAME) as stream, long_ones.cursor(NAME, "billing") as cursor:
        left = stream.read(follow=True)
        assert (await anext(left)).data == LONG % 0
        reading = [stream.read() for _ in range(6)]
        for number in range(5):
            for each in reading:
                assert (await anext(each)).data == LONG % number and kept.bytes <= 100
        got = [message.data async for message in until_idle(cursor)]
        assert got == [LONG % number for number in range(5)] and kept.bytes <= 100
        await left.aclose()


@pytest.mark.parametrize(("error", "is_told"), [(NoSuchEntry("lost"), True), (LedgerGone(), False)])
async def test_a_chunk_that_cannot_be_read_again(
    long_ones: BookKeeper, monkeypatch: pytest.MonkeyPatch, error: Exception, is_told: bool
) -> None:
    """One that is lost is told where its message would be, and one that retention deleted is left out."""

    async def fails(walk: EntryWalk, position: Position) -> None:
        raise error

    monkeypatch.setattr(EntryWalk, "entry", fails)
    async with long_ones.cursor(NAME, "billing") as cursor:
        if is_told:
            with pytest.raises(CorruptEntry, match="its chunk at 0:0 cannot be read") as told:
                await cursor.read(wait=False)
            assert told.value.position == Position(1, 2)
        else:
            got = [message async for message in until_idle(cursor)]
            await cursor.ack_batch(got)
            assert 0 < len(got) < 5 and cursor.backlog == 0


async def until_idle(cursor: Cursor) -> AsyncIterator[StreamMessage]:
    while messages := await cursor.read(wait=False):
        for message in messages:
            yield message
