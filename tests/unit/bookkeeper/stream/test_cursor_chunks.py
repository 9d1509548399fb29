"""Cursors of streams with messages that came in chunks: all chunks are acknowledged with their message."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from support.cursors import drain
from support.listed_streams import NAME, chunk_entries, pulsar_entry
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream import chunks, cursor_places
from tallystick.bookkeeper.stream.cursors import Cursors
from tallystick.bookkeeper.stream.entries import EntryWalk
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import BookieUnavailable, CorruptEntry


async def test_the_chunks_of_a_message_are_acknowledged_with_it(stream: Stream, cursors: Cursors) -> None:
    raw = StreamSettings(entry_format="raw")
    await stream.close()
    parts = chunk_entries(b"0123456789", 4)
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=raw) as owner:  # type: ignore[attr-defined]
        first = await owner.append(parts[0])
        plain = await owner.append(pulsar_entry(b"h"))
        await owner.append(parts[1])
        async with cursors.open(NAME, "billing", start=first) as cursor:
            await asyncio.sleep(0.3)
            assert await drain(cursor) == "h"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await cursor.read()  # and nothing is delivered again
            assert await drain(cursor) == ""
            await cursor.ack(plain)
            await owner.append(parts[2])
            (message,) = await cursor.read()
            assert message.data == b"0123456789" and len(message.chunks) == 2
            await cursor.ack(message.position)
            assert cursor.backlog == 0 and cursor.mark == message.position


async def test_chunks_of_a_message_that_never_is_complete_hold_no_cursor(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MOST_MESSAGES", 1)
    await stream.close()
    dead, whole = (chunk_entries(b"01234567", 4, uuid=uuid) for uuid in ("dead", "whole"))
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        first = await owner.append(dead[0])
        for entry in (*whole, dead[1]):
            last = await owner.append(entry)
        await asyncio.sleep(0.3)  # the LAC
        async with cursors.open(NAME, "billing", start=first) as cursor:
            (message,) = await cursor.read()
            assert message.data == b"01234567"
            await cursor.ack(message)
            assert await drain(cursor) == ""  # what is left of the one that was given up
            assert cursor.backlog == 0 and cursor.mark == last


async def test_chunks_of_a_message_that_nobody_can_decompress_hold_no_cursor(stream: Stream, cursors: Cursors) -> None:
    """The error tells of the last one: whoever acknowledges that is rid of all."""
    await stream.close()
    parts = chunk_entries(b"0123456789", 4, stored=b"no zlib data", compression=Compression.ZLIB)
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        positions = [await owner.append(part) for part in parts]
        await asyncio.sleep(0.3)  # the LAC
        async with cursors.open(NAME, "billing", start=positions[0]) as cursor:
            with pytest.raises(CorruptEntry) as raised:
                await cursor.read()
            assert raised.value.position == positions[-1]
            await cursor.ack(raised.value.position)
            assert cursor.backlog == 0 and cursor.mark == positions[-1]


async def test_a_message_that_was_not_delivered_is_read_from_its_first_chunk_again(
    stream: Stream, cursors: Cursors
) -> None:
    await stream.close()
    chunked = chunk_entries(b"01234567", 4)
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        first = await owner.append(chunked[0])
        await owner.append(pulsar_entry(b"h"))
        await owner.append(chunked[1])
        await owner.append(b"\xff")
        async with cursors.open(NAME, "billing", start=first) as cursor:
            assert await drain(cursor, max_bytes=1) == "h"
            await cursor._reading._begin_anew()
            assert [each.data for each in await cursor.read(1)] == [b"01234567"]


async def test_positions_of_chunks_are_bounded_and_those_of_the_newest_message_are_there(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of messages of many short chunks they were more than all that was read."""
    monkeypatch.setattr(cursor_places, "MOST_CHUNKS", 7)
    await stream.close()
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        first = await owner.append(pulsar_entry(b"first"))
        for count in (3, 4, 4, 9, 4, 4):
            for entry in chunk_entries(b"x" * count, 1, uuid=f"u{count}"):
                await owner.append(entry)
        await asyncio.sleep(0.3)  # the LAC
        async with cursors.open(NAME, "billing", start=first) as cursor:
            kept = []
            for _ in range(7):
                (message,) = await cursor.read(1)
                kept.append([len(chunks) for chunks in cursor._places._chunks.values()])
            assert kept == [[], [2], [2, 3], [3, 3], [8], [3], [3, 3]]
            assert cursor._places._chunk_count == 6
            await cursor.ack(message.position)
            assert cursor.backlog == 29 - 4


async def interleaved(stream: Stream, cursors: Cursors) -> Position:
    """Chunks of a and b, the last one of b is yet to come. Returns the position of the first."""
    await stream.close()
    ledgers = cursors._context.ledgers
    a, b = (chunk_entries(data, 4, uuid=data.decode()[0]) for data in (b"a1234567", b"b1234567"))
    async with ledgers.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        positions = [await owner.append(entry) for entry in (a[0], b[0], a[1], b[1])]
    return cast(Position, positions[0])


@pytest.mark.parametrize("error", [None, BookieUnavailable()])
async def test_a_message_that_is_being_joined_when_its_read_ends_comes_with_the_next(
    stream: Stream, cursors: Cursors, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Nobody had got it, and its last chunk was acknowledged as one of a message whose first was not read."""
    cursors._readers.decompressor.chunks_kept = chunks.KeptChunks(0)  # so that all chunks are read again
    first, read_again, calls = await interleaved(stream, cursors), EntryWalk.entry, 0

    async def entry(walk: EntryWalk, position: Position) -> Entry:
        nonlocal calls
        calls += 1
        if calls == 3 and error is not None:  # the first chunk of b
            raise error
        if calls == 3:
            await asyncio.sleep(10)
        return await read_again(walk, position)

    monkeypatch.setattr(EntryWalk, "entry", entry)
    async with cursors.open(NAME, "billing", start=first) as cursor:
        assert [message.data for message in await cursor.read(1)] == [b"a1234567"]
        with pytest.raises(TimeoutError if error is None else BookieUnavailable):
            async with asyncio.timeout(1):
                await cursor.read()
        assert calls == 3 and await drain(cursor) == "b1234567"
        assert cursor.backlog == 4, "nothing is acknowledged"


async def test_a_message_that_is_delivered_is_not_acknowledged_when_chunks_before_it_are_read_again(
    stream: Stream, cursors: Cursors
) -> None:
    first = await interleaved(stream, cursors)
    async with cursors.open(NAME, "billing", start=first) as cursor:
        assert [message.data for message in await cursor.read(1)] == [b"a1234567"]
        await cursor._reading._begin_anew()  # as after a read that was cancelled: from the first chunk of b on
        assert await drain(cursor) == "b1234567" and cursor.backlog == 4
    async with cursors.open(NAME, "billing") as again:
        assert await drain(again) == "a1234567b1234567"


async def test_a_read_that_was_given_up_reads_nothing_again_for_a_message_that_is_not_complete(
    stream: Stream, cursors: Cursors
) -> None:
    """The producer of its chunks may be dead. Who reads with a time limit read all since then again and again: up to a
    million entries, and got no new message when that took longer."""
    await stream.close()
    dead = chunk_entries(b"01234567", 4)
    writer = cursors._context.ledgers
    async with writer.open_stream(NAME, settings=StreamSettings(entry_format="raw")) as owner:  # type: ignore[attr-defined]
        first = await owner.append(dead[0])
        last = [await owner.append(pulsar_entry(b"h")) for _ in range(20)][-1]
        await asyncio.sleep(0.3)  # the LAC
        async with cursors.open(NAME, "billing", start=first) as cursor:
            assert await drain(cursor) == "h" * 20
            starts: list[Position] = []
            read = cursor._reading._read

            def counted(start: Position) -> object:
                starts.append(start)
                return read(start)

            cursor._reading._read = counted  # type: ignore[assignment, method-assign]
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await cursor.read()
            assert len(starts) >= 2 and min(starts) > last
            await owner.append(dead[1])
            (message,) = await cursor.read()
            assert message.data == b"01234567" and message.chunks == (first,), "what had come of it was kept"
