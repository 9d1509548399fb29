"""What is read of entries: every compression, chunks, what is beside the loop."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from support.listed_streams import NAME, ListedStream, chunk_entries, pulsar_entry, readers_of
from support.machines import machine
from support.small_cluster import SmallCluster
from support.workers import HeldWorker
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream import messages, reader
from tallystick.bookkeeper.stream.encoding import EntryEncoder
from tallystick.bookkeeper.stream.late_appends import LateEntry
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.plain_payloads import PlainPayload, PlainPayloads
from tallystick.bookkeeper.stream.reader import StreamReaders
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.side_thread import SideThread
from tallystick.bookkeeper.wire.compression import Compression, compress
from tallystick.bookkeeper.wire.pulsar_messages import Buffer, Chunk, OpenEntry, OutMessage, open_entry, plain_payload
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata
from tallystick.errors import CorruptEntry, UsageError


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return ListedStream(cluster.client())


@pytest.fixture
async def readers(cluster: SmallCluster) -> AsyncIterator[StreamReaders]:
    made = readers_of(cluster.client(2))
    yield made
    await made.close()


async def read(readers: StreamReaders, **how: Any) -> list[StreamMessage]:
    async with readers.open(NAME) as opened:
        return [message async for message in opened.read(**how)]


async def test_every_compression(owner: ListedStream, readers: StreamReaders) -> None:
    texts = [b"a" * 100, b"b" * 100]
    await owner.create([pulsar_entry(*texts, compression=each) for each in Compression])
    assert [message.data for message in await read(readers)] == texts * len(Compression)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
async def test_a_message_in_chunks(owner: ListedStream, readers: StreamReaders, compression: Compression) -> None:
    data = bytes(range(256)) * 4
    parts = chunk_entries(data, 100, stored=compress(data, compression), compression=compression)
    await owner.create([parts[0], pulsar_entry(b"between"), *parts[1:], pulsar_entry(b"behind")])
    ledger = owner.info.ledgers[0].ledger
    between, long, behind = await read(readers)
    assert (between.data, behind.data, long.data) == (b"between", b"behind", data)
    assert long.position == Position(ledger, len(parts)) and long.sequence == 7
    assert long.chunks == (Position(ledger, 0), *(Position(ledger, entry) for entry in range(2, len(parts))))
    assert between.chunks == ()


async def test_chunks_in_two_ledgers(owner: ListedStream, readers: StreamReaders) -> None:
    first, second, third = chunk_entries(b"abcdef", 2)
    await owner.create([first], [second, third])
    assert [message.data for message in await read(readers)] == [b"abcdef"]
    assert await read(readers, start=Position(owner.info.ledgers[1].ledger, 0)) == []


async def test_chunks_that_are_given_up_are_told(
    owner: ListedStream, readers: StreamReaders, cluster: SmallCluster
) -> None:
    first, _, third = chunk_entries(b"abcdef", 2)
    await owner.create([first, third, pulsar_entry(b"x")])
    assert [message.data for message in await read(readers)] == [b"x"]
    (event,) = [event for event in cluster.events if event.kind == "chunks left out"]
    assert event.fields["first"] == str(Position(owner.info.ledgers[0].ledger, 0))


async def test_chunks_whose_bytes_are_damaged(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(
        [*chunk_entries(b"abcdef", 2, stored=b"nozlib", compression=Compression.ZLIB), pulsar_entry(b"x")]
    )
    with pytest.raises(CorruptEntry) as told:
        await read(readers)
    assert told.value.position == Position(owner.info.ledgers[0].ledger, 2)
    assert [message.data for message in await read(readers, on_corrupt="skip")] == [b"x"]


async def test_nothing_longer_than_the_bound_is_made(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_MESSAGE_BYTES", 1_000)
    noise = b"e" * 1_000  # which is longer as it is stored
    await owner.create(
        [
            pulsar_entry(b"a" * 1_001, compression=Compression.ZLIB),
            *chunk_entries(b"b" * 1_001, 600),
            *chunk_entries(b"c" * 1_001, 600, stored=b"c" * 900, compression=Compression.ZLIB),
            *chunk_entries(noise, 600, stored=zlib.compress(noise, 0), compression=Compression.ZLIB),
            pulsar_entry(b"d" * 1_000, compression=Compression.ZLIB),
        ]
    )
    with pytest.raises(CorruptEntry, match="1000 are the most"):
        await read(readers)
    assert [message.data for message in await read(readers, on_corrupt="skip")] == [b"d" * 1_000]


async def test_markers_of_a_broker_are_no_messages(owner: ListedStream, readers: StreamReaders) -> None:
    metadata = MessageMetadata(producer_name="broker", sequence_id=0, publish_time=1, marker_type=20)
    front = metadata.SerializeToString()
    marker = len(front).to_bytes(4, "big") + front + b"state"
    await owner.create([marker, pulsar_entry(b"a"), marker])
    assert [message.data for message in await read(readers)] == [b"a"]


async def test_what_takes_long_is_decompressed_beside_the_loop(owner: ListedStream, readers: StreamReaders) -> None:
    """256 entries of a few kilobytes with a megabyte of zeros each were a turn of half a second."""
    beside = 0
    thread = readers.decompressor._thread
    worker = thread.worker()

    class Counting:
        """A worker that counts."""

        async def run(self, call: Callable[[], Any]) -> Any:
            nonlocal beside
            beside += 1
            return await worker.run(call)

        async def idle(self) -> None:
            await worker.idle()

        def close(self) -> None:
            worker.close()

    thread._worker = cast(Any, Counting())
    short, long = bytes(1000), bytes(900_000)
    await owner.create([pulsar_entry(short, compression=Compression.ZLIB)] * 20 + [pulsar_entry(long)])
    assert len(await read(readers)) == 21 and beside == 0
    await owner.append(*[pulsar_entry(long, compression=Compression.ZLIB)] * 40)
    await owner.append(*chunk_entries(long, 600, stored=compress(long, Compression.ZLIB), compression=Compression.ZLIB))
    await owner.roll()
    start = Position(owner.info.ledgers[1].ledger, 0)
    assert [len(message.data) for message in await read(readers, start=start)] == [len(long)] * 41
    assert 20 <= beside <= 41, "one in a turn is done at once"
    await readers.close()
    with pytest.raises(UsageError, match="closed"):
        thread.worker()


def test_a_message_shows_its_position_and_data() -> None:
    assert "Position(ledger=1, entry=2" in repr(StreamMessage(Position(1, 2), b"x"))
    assert messages.ENTRY_FORMATS == ("pulsar", "raw")


async def test_what_nobody_waits_for_any_more_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gave up, or closes the client, does not wait for the long ones of all readers."""
    held, made = HeldWorker(), list[int]()

    def counted(entry: OpenEntry, *, max_bytes: int) -> Buffer:
        made.append(entry.position.entry)
        return plain_payload(entry, max_bytes=max_bytes)

    monkeypatch.setattr(messages, "plain_payload", counted)
    decompressor = messages.Decompressor(SideThread(lambda name: held, "decompress"))
    encoder = EntryEncoder(StreamSettings(compression="zlib"), "p", machine().clock, SideThread(lambda name: held, "e"))
    late = encoder.encode([OutMessage(bytes(4 << 20))], None, None)
    assert isinstance(late, LateEntry)
    entries = [open_entry(late.encode(), position=Position(1, number)) for number in range(3)]
    left, read, closed = [asyncio.create_task(decompressor.payload(entry, max_bytes=8 << 20)) for entry in entries]
    await asyncio.sleep(0)
    assert len(held.given) == 3
    left.cancel()
    await asyncio.sleep(0)
    held.do_one()
    held.do_one()
    assert len(await read) == 4 << 20 and made == [1]
    closing = asyncio.create_task(decompressor.close())
    await asyncio.sleep(0)
    held.do_one()
    held.do_one()
    await closing
    with pytest.raises(UsageError, match="closed"):
        await closed
    assert made == [1]


async def test_long_chunks_are_joined_beside_the_loop() -> None:
    """128 MiB of them were a turn of 50 to 80 ms."""
    held = HeldWorker()
    decompressor = messages.Decompressor(SideThread(lambda name: held, "decompress"))
    part = bytes(5 << 20)
    chunk = Chunk("u", 3, 4, 20 << 20, Compression.NONE, 20 << 20)
    joining = asyncio.create_task(decompressor.chunks([part] * 4, chunk, Position(1, 3), max_bytes=20 << 20))
    await asyncio.sleep(0)
    assert len(held.given) == 1
    held.do_one()
    assert len(await joining) == 20 << 20
    short = replace(chunk, total_bytes=4, size=4)
    assert await decompressor.chunks([b"ab", b"cd"], short, Position(1, 3), max_bytes=20) == b"abcd"
    assert not held.given


@pytest.mark.parametrize("is_left", [False, True])
async def test_very_many_chunks_are_given_up_over_some_turns(
    monkeypatch: pytest.MonkeyPatch, cluster: SmallCluster, is_left: bool
) -> None:
    """A cursor acknowledges each: 65,536 were a turn of 270 ms. And all of them, whoever waits for it."""
    monkeypatch.setattr(messages, "TURN_GIVEN_UP", 8)
    given_up: list[Position] = []
    decoder = messages.EntryDecoder(
        NAME,
        messages.Decompressor(SideThread(lambda name: HeldWorker(), "decompress")),
        cast(Any, None),
        cast(Any, None),
        cluster.client().context.events,
        is_raw=False,
        max_bytes=1000,
        given_up=given_up.append,
    )
    first, _, third = chunk_entries(b"abcdef", 2)
    for number in range(40):
        assert await decoder.steps(Entry(number, first, 1, 0, -1)) == [[]]
    given_at: list[int] = []
    telling = asyncio.create_task(cast(Any, decoder.steps(Entry(40, third, 1, 0, -1))))
    while not telling.done():
        await asyncio.sleep(0)
        given_at.append(len(given_up))
        if is_left and len(given_up) == 16:
            telling.cancel()
    assert given_up == [Position(1, number) for number in range(41)]
    assert is_left or given_at[:6] == [8, 16, 24, 32, 40, 41]


LONG_BATCH = [b"%d" % n + bytes(100_000) for n in range(20)]


def long_batch() -> bytes:
    return pulsar_entry(*LONG_BATCH, compression=Compression.ZLIB)


async def test_readers_in_the_middle_of_long_batches_keep_little_of_them_together(
    owner: ListedStream, readers: StreamReaders
) -> None:
    """Each kept what an entry may have, 128 MiB, however many there were; and who merges two waits for neither."""
    await owner.create([long_batch()] * 2)
    payloads = readers.decompressor.payloads = PlainPayloads(5_000_000)
    opened = [readers.open(NAME) for _ in range(10)]
    read = [(await each).read() for each in opened]
    found: list[list[bytes]] = [[] for _ in read]
    for _ in range(40):
        for messages_of, each in zip(found, read, strict=True):
            messages_of.append((await anext(each)).data)
            assert payloads.bytes <= 5_000_000
    assert found == [LONG_BATCH * 2] * 10
    assert [await anext(each, None) for each in read] == [None] * 10
    assert payloads.bytes == 0


@pytest.mark.parametrize("index", [0, 7, 19])
async def test_a_long_batch_is_read_from_its_middle_and_its_messages_have_their_places(
    owner: ListedStream, readers: StreamReaders, index: int
) -> None:
    readers.decompressor.payloads = PlainPayloads(0)
    await owner.create([long_batch(), pulsar_entry(b"behind")])
    start = Position(owner.info.ledgers[0].ledger, 0, index)
    *rest, behind = await read(readers, start=start)
    assert [(each.position.batch_index, each.data) for each in rest] == list(enumerate(LONG_BATCH))[index:]
    assert behind.data == b"behind"


async def test_a_long_batch_that_ends_in_damage_is_read_up_to_it(owner: ListedStream, readers: StreamReaders) -> None:
    whole = open_entry(long_batch(), position=Position(0, 0))
    payload = bytes(plain_payload(whole, max_bytes=1 << 30))[:-50_000]
    metadata = MessageMetadata.FromString(whole.metadata.SerializeToString())
    metadata.uncompressed_size = len(payload)
    front = metadata.SerializeToString()
    cut = len(front).to_bytes(4, "big") + front + compress(payload, Compression.ZLIB)
    await owner.create([cut, pulsar_entry(b"behind")])
    found = [message.data for message in await read(readers, on_corrupt="skip")]
    assert found[-1] == b"behind" and found[:-1] == LONG_BATCH[: len(found) - 1] and 15 <= len(found) < 21
    with pytest.raises(CorruptEntry, match="not whole"):
        await read(readers)


async def test_what_was_read_is_not_kept_while_the_next_is_waited_for(
    owner: ListedStream, readers: StreamReaders
) -> None:
    """Each follower kept its last message, which may have 128 MiB, until the next one came."""
    await owner.create([], [pulsar_entry(b"long" * 1000)])
    reader = await readers.open(NAME)
    messages_read = reader.read(follow=True)
    data = (await anext(messages_read)).data
    following = asyncio.create_task(cast(Any, anext(messages_read)))
    await asyncio.sleep(0.05)
    assert not following.done() and sys.getrefcount(data) == 2
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await reader.close()


def test_the_payload_that_was_used_longest_ago_is_let_go() -> None:
    payloads, plain = PlainPayloads(100), [PlainPayload() for _ in range(4)]
    for each in plain[:3]:
        payloads.keep(each, bytes(40))
    assert [each.payload is not None for each in plain] == [False, True, True, False] and payloads.bytes == 80
    payloads.keep(plain[1], bytes(40))
    payloads.keep(plain[3], bytes(60))
    assert [each.payload is not None for each in plain] == [False, True, False, True] and payloads.bytes == 100
    payloads.keep(plain[0], bytes(1000))
    assert [each.payload is not None for each in plain] == [True, False, False, False] and payloads.bytes == 1000
    payloads.drop(plain[1])
    del plain[:], each
    assert payloads.bytes == 0, "nobody reads it any more"
