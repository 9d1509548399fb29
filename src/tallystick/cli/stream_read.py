"""Messages of a stream to the terminal: once through, or as they come; for nobody, or for a cursor."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from tallystick.admin.streams import entries_back
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.reader import StreamReader
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.cli import output, stream_formats
from tallystick.cli.connecting import connect
from tallystick.cli.stream_formats import Show
from tallystick.cli.stream_options import ReadOptions
from tallystick.cli.stream_places import END_FORMS, Place
from tallystick.errors import CorruptEntry, EntryLost, NoSuchEntry, UsageError

READ_AHEAD = 500  # messages of a cursor that are acknowledged together


@dataclass(frozen=True)
class StreamSelection:
    """Which messages. ``to`` is not among them; ``count``: how many at most."""

    start: Place
    to: Place | None
    count: int | None
    follow: bool
    is_raw: bool
    skip_corrupt: bool

    @property
    def entry_format(self) -> str:
        return "raw" if self.is_raw else "pulsar"

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            raise UsageError("-c is a number from 0", given=self.count)
        if self.to is not None and self.to.position is None and self.to.time_ms is None:
            raise UsageError(f"--to is {END_FORMS}")
        if self.to is not None and self.start.last is not None:
            raise UsageError("--to goes with -o beginning, s@TIME or LEDGER:ENTRY")


def selection(reading: ReadOptions, start: str, to: str | None, *, follow: bool) -> StreamSelection:
    """Raises UsageError."""
    end = None if to is None else Place.parse(to, "--to", END_FORMS)
    return StreamSelection(Place.parse(start), end, reading.count, follow, reading.raw, reading.skip_corrupt)


def require_one_place(cursor: str | None, start: str | None, to: str | None) -> None:
    """Raises UsageError where a cursor reads, which has a place, and others are given."""
    if cursor is not None and (start is not None or to is not None):
        raise UsageError("a cursor has a place: leave out -o and --to; `tally stream seek` moves it")


def printer(name: str, reading: ReadOptions, *, json: bool) -> Show:
    """Raises UsageError."""
    return stream_formats.printer(
        name, reading.format_, reading.key_delimiter, ids=reading.ids, hex_=reading.hex_, json=json
    )


async def run(
    uri: str, name: str, reading: ReadOptions, selection: StreamSelection, show: Show, *, explain: bool
) -> None:
    """Show the messages that are wanted, for a cursor or for nobody."""
    if reading.cursor is not None:
        await consume(uri, name, reading.cursor, selection, show, takeover=reading.takeover, explain=explain)
    elif reading.takeover:
        raise UsageError("--takeover goes with --cursor: who reads takes a stream from nobody")
    else:
        await read(uri, name, selection, show, explain=explain)


async def read(uri: str, name: str, selection: StreamSelection, show: Show, *, explain: bool) -> None:
    """Show the messages that are wanted."""
    async with connect(uri, explain=explain) as bk:
        opening = bk.read_stream(name, entry_format=selection.entry_format)
        async with opening as reader, aclosing(_messages(bk, reader, selection)) as messages:
            shown = 0
            with output.progress("messages", is_shown=not sys.stdout.isatty()) as count:
                while shown != selection.count and (message := await anext(messages, None)) is not None:
                    show(message)
                    shown += 1
                    if selection.follow:
                        sys.stdout.flush()
                    count(1)
            if not shown and not selection.follow:
                first, last = await reader.first(), await reader.last_confirmed()
                span = "the stream is empty" if last.entry < 0 else f"the stream has {first} to {last}"
                print(f"0 messages read; {span}", file=sys.stderr)


async def consume(
    uri: str, name: str, cursor: str, selection: StreamSelection, show: Show, *, takeover: bool, explain: bool
) -> None:
    """Show what a cursor has not acknowledged, and acknowledge it once it is printed."""
    async with (
        connect(uri, explain=explain) as bk,
        bk.cursor(name, cursor, create=False, takeover=takeover, entry_format=selection.entry_format) as handle,
    ):
        shown = 0
        with output.progress("messages", is_shown=not sys.stdout.isatty()) as count:
            while read_count := READ_AHEAD if selection.count is None else min(READ_AHEAD, selection.count - shown):
                try:
                    messages = await handle.read(read_count, wait=selection.follow)
                except (CorruptEntry, EntryLost, NoSuchEntry) as error:
                    if not selection.skip_corrupt:
                        raise
                    print(f"tally: entry left out: {error}", file=sys.stderr)
                    await handle.ack(error.fields["position"])
                    continue
                if not messages:
                    break
                for message in messages:
                    show(message)
                sys.stdout.flush()
                await handle.ack_batch(messages)
                shown += len(messages)
                count(len(messages))
        if not shown and not selection.follow:
            print(f"0 messages read; cursor {cursor} has acknowledged all", file=sys.stderr)


async def resolve(bk: BookKeeper, name: str, place: Place, *, is_raw: bool) -> Position | str:
    """Returns the position where a cursor reads next, for a place that may not be one. Raises as reading does."""
    if place.position is not None:
        return place.position
    selection = StreamSelection(place, None, None, False, is_raw, True)
    async with bk.read_stream(name, entry_format=selection.entry_format) as reader:
        if place.time_ms is not None:
            return await reader.position_at(place.time_ms)
        if not place.last:
            return "beginning" if place.last is None else "end"
        last = await reader.last_confirmed()
        messages = await _last(bk, reader, selection, last._replace(entry=last.entry + 1))
        return messages[0].position if messages else "end"


async def _messages(
    bk: BookKeeper, reader: StreamReader, selection: StreamSelection
) -> AsyncGenerator[StreamMessage, None]:
    start, follow = selection.start, selection.follow
    if start.last is not None:
        last = await reader.last_confirmed()
        behind = last._replace(entry=last.entry + 1)
        for message in await _last(bk, reader, selection, behind):
            yield message
        if not follow:
            return
        start = Place(position=behind if behind.entry else None)
    to = selection.to or Place()
    reading = reader.read(
        start.position,
        start_time=start.time_ms,
        end=to.position,
        end_time=to.time_ms,
        follow=follow,
        on_corrupt="skip" if selection.skip_corrupt else "raise",
    )
    async with aclosing(reading) as messages:
        async for message in messages:
            yield message


async def _last(
    bk: BookKeeper, reader: StreamReader, selection: StreamSelection, behind: Position
) -> deque[StreamMessage]:
    """Returns so many messages before ``behind`` as are wanted. An entry has one at least."""
    count = selection.start.last or 0
    kept = deque[StreamMessage](maxlen=count)
    if count and behind.entry:
        info = (await bk.stream_context.catalog.read(reader.stream)).value
        start = entries_back(info, behind, count)
        reading = reader.read(start, end=behind, on_corrupt="skip" if selection.skip_corrupt else "raise")
        async with aclosing(reading) as messages:
            async for message in messages:
                kept.append(message)
    return kept
