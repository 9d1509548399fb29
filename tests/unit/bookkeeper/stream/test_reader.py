"""Reading streams: from where to where, of closed ledgers and an open one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry, readers_of
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.reader import StreamReader, StreamReaders
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.errors import (
    CorruptEntry,
    NoSuchEntry,
    NoSuchLedger,
    NoSuchPosition,
    NoSuchStream,
    PositionTrimmed,
    StreamClosed,
    UsageError,
)


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return ListedStream(cluster.client())


@pytest.fixture
async def readers(cluster: SmallCluster) -> AsyncIterator[StreamReaders]:
    made = readers_of(cluster.client(2))
    yield made
    await made.close()


def one(data: str, **fields: Any) -> bytes:
    return pulsar_entry(data.encode(), **fields)


async def texts(reader: StreamReader, *start: Any, **bounds: Any) -> str:
    """What the messages say that are read, one behind the other."""
    return "".join([message.data.decode() async for message in reader.read(*start, **bounds)])


async def positions(reader: StreamReader, **bounds: Any) -> list[Position]:
    return [message.position async for message in reader.read(**bounds)]


@pytest.fixture
async def reader(owner: ListedStream, readers: StreamReaders) -> StreamReader:
    """Of two closed ledgers, ab and cd, and an open one, e."""
    await owner.create([one("a"), one("b")], [one("c"), one("d")])
    await owner.append(one("e"))
    await owner.tell_lac()
    return await readers.open(NAME)


def at(owner: ListedStream, ledger: int, entry: int, *index: int) -> Position:
    """A position by the ledger's place in the list."""
    return Position(owner.info.ledgers[ledger].ledger, entry, *index)


async def test_all_that_is_confirmed_is_read_in_order(reader: StreamReader, owner: ListedStream) -> None:
    assert await texts(reader) == "abcde"
    assert [message.data async for message in reader] == [b"a", b"b", b"c", b"d", b"e"]
    assert await positions(reader) == [at(owner, *place) for place in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]]


async def test_the_bounds_are_start_included_and_end_excluded(reader: StreamReader, owner: ListedStream) -> None:
    assert await texts(reader, at(owner, 0, 1), end=at(owner, 1, 1)) == "bc"
    assert await texts(reader, str(at(owner, 0, 1)), end=str(at(owner, 1, 1))) == "bc"
    assert await texts(reader, at(owner, 1, 0)) == "cde"
    assert await texts(reader, at(owner, 1, -1)) == "cde"
    assert await texts(reader, EARLIEST) == await texts(reader, end=at(owner, 2, 1)) == "abcde"
    assert await texts(reader, end=at(owner, 2, 50)) == "abcde"
    assert await texts(reader, end=EARLIEST) == ""
    assert await texts(reader, at(owner, 1, 1), end=at(owner, 0, 1)) == ""


async def test_one_behind_the_last_is_where_reading_goes_on(reader: StreamReader, owner: ListedStream) -> None:
    assert await texts(reader, at(owner, 0, 2)) == "cde"
    assert await texts(reader, at(owner, 2, 1)) == ""


async def test_the_ends_of_a_stream(reader: StreamReader, owner: ListedStream) -> None:
    assert (await reader.first(), await reader.last_confirmed()) == (at(owner, 0, 0), at(owner, 2, 0))
    await owner.roll()
    assert await reader.last_confirmed() == at(owner, 2, 0)
    await owner.trim(3)
    assert (await reader.first(), await reader.last_confirmed()) == (at(owner, 0, 0), at(owner, 0, -1))


async def test_a_stream_without_ledgers(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.catalog.create(NAME)
    async with readers.open(NAME) as reader:
        assert await reader.first() == await reader.last_confirmed() == EARLIEST
        assert await texts(reader) == ""
        with pytest.raises(NoSuchPosition):
            await texts(reader, "3:0")


async def test_positions_that_do_not_exist(reader: StreamReader, owner: ListedStream) -> None:
    ledgers = [each.ledger for each in owner.info.ledgers]
    beyond = [at(owner, 0, 3), at(owner, 2, 2), Position(ledgers[-1] + 1, 0), Position(ledgers[-1] + 7, 3)]
    for position in beyond:
        with pytest.raises(NoSuchPosition) as told:
            await texts(reader, position)
        assert (told.value.stream, told.value.position) == (NAME, position)
        assert not isinstance(told.value, PositionTrimmed)


async def test_a_position_in_a_ledger_that_was_dropped(reader: StreamReader, owner: ListedStream) -> None:
    """Nothing was stored there, so its beginning is where the next one begins."""
    await owner.roll()
    dropped = await owner.roll() - 1
    await owner.append(one("f"))
    await owner.tell_lac()
    assert [each.ledger for each in owner.info.ledgers][-2:] == [dropped - 1, dropped + 1]
    assert await texts(reader, Position(dropped, 0)) == await texts(reader, Position(dropped, -1)) == "f"
    for place in ((dropped, 1), (dropped, 0, 1)):
        with pytest.raises(NoSuchPosition):
            await texts(reader, Position(*place))


async def test_the_list_is_as_of_the_call(reader: StreamReader, owner: ListedStream) -> None:
    """Whether the news of its change have come or not."""
    reader._list._watch.cancel()
    ledger = await owner.roll()
    await owner.append(one("f"))
    await owner.tell_lac()
    following = reader.read(Position(ledger, 0), follow=True)
    assert (await anext(following)).data == b"f"
    await owner.roll()
    await owner.append(one("g"))
    await owner.roll()
    assert await texts(reader) == "abcdefg"


async def test_a_trimmed_position_says_what_is_first(reader: StreamReader, owner: ListedStream) -> None:
    gone = at(owner, 0, 1)
    await owner.trim(1)
    for bounds in ({}, {"follow": True}):
        with pytest.raises(PositionTrimmed) as told:
            await texts(reader, gone, **bounds)
        assert (told.value.position, told.value.first) == (gone, at(owner, 0, 0))
    assert await texts(reader) == "cde"


async def test_what_is_trimmed_while_it_is_read_is_not_passed_over(reader: StreamReader, owner: ListedStream) -> None:
    reading = reader.read()
    assert (await anext(reading)).data == b"a" and (await anext(reading)).data == b"b"
    gone = at(owner, 1, 0)
    await owner.trim(2)
    await reader._list.sync()
    with pytest.raises(PositionTrimmed) as told:
        await anext(reading)
    assert (told.value.position.ledger, told.value.first) == (gone.ledger, at(owner, 0, 0))


async def test_what_was_read_before_it_is_trimmed_is_not_missed(reader: StreamReader, owner: ListedStream) -> None:
    reading = reader.read()
    for expected in (b"a", b"b", b"c"):
        assert (await anext(reading)).data == expected
    await owner.trim(1)
    await reader._list.sync()
    assert [message.data async for message in reading] == [b"d", b"e"]


async def test_the_beginning_is_what_is_left(reader: StreamReader, owner: ListedStream) -> None:
    """A ledger that is trimmed between the look at the list and its opening was not asked for."""
    reading = reader.read()
    await owner.trim(2)
    assert [message.data async for message in reading] == [b"e"]


async def test_a_reading_ends_where_it_was_confirmed_at_the_call(reader: StreamReader, owner: ListedStream) -> None:
    reading = reader.read()
    assert (await anext(reading)).data == b"a"
    await owner.append(one("f"))
    await owner.roll()
    await owner.append(one("g"))
    await owner.tell_lac()
    assert [message.data async for message in reading] == [b"b", b"c", b"d", b"e"]
    assert await texts(reader) == "abcdefg"


async def test_nothing_beyond_the_lac_is_delivered(
    reader: StreamReader, owner: ListedStream, cluster: SmallCluster
) -> None:
    """However many bookies have it."""
    assert owner.writer is not None
    for bookie in cluster.bookies.values():
        bookie.held = []
    pending = owner.writer.append_nowait(one("f"))
    await owner.tell_lac()
    assert all((owner.writer.id, 1) in bookie.entries for bookie in cluster.bookies.values())
    assert await texts(reader) == "abcde" and await reader.last_confirmed() == at(owner, 2, 0)
    for bookie in cluster.bookies.values():
        bookie.release()
    await pending


async def test_nothing_is_fenced_and_nothing_is_written(
    reader: StreamReader, owner: ListedStream, cluster: SmallCluster
) -> None:
    assert await texts(reader) == "abcde"
    assert not any(bookie.fenced for bookie in cluster.bookies.values())
    await owner.append(one("f"))
    await owner.close_ledger()


async def test_a_batch_has_positions_of_its_own(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([one("a"), pulsar_entry(b"b", b"c", b"d", sequence=5, time_ms=7), one("e")])
    reader = await readers.open(NAME)
    messages = [message async for message in reader.read()]
    assert [(message.position, message.batch_size) for message in messages[1:4]] == [
        (at(owner, 0, 1, index), 3) for index in range(3)
    ]
    assert [(message.sequence, message.publish_time) for message in messages[1:4]] == [(5, 7), (6, 7), (7, 7)]
    assert await texts(reader, at(owner, 0, 1, 1)) == "cde"
    assert await texts(reader, at(owner, 0, 1)) == await texts(reader, at(owner, 0, 1, 0)) == "bcde"
    assert await texts(reader, end=at(owner, 0, 1, 2)) == "abc"
    assert await texts(reader, end=at(owner, 0, 1)) == await texts(reader, end=at(owner, 0, 1, 0)) == "a"
    assert await texts(reader, at(owner, 0, 0, 0), end=at(owner, 0, 2, 1)) == "abcde"
    for index in (3, 9):
        with pytest.raises(NoSuchPosition) as told:
            await texts(reader, at(owner, 0, 1, index))
        assert told.value.position == at(owner, 0, 1, index)


async def test_an_index_is_that_of_a_message_in_its_own_ledger(owner: ListedStream, readers: StreamReaders) -> None:
    """Each ledger has an entry of that number."""
    await owner.create([pulsar_entry(b"a", b"b", b"c")], [pulsar_entry(b"d", b"e", b"f")])
    reader = await readers.open(NAME)
    assert await texts(reader, end=at(owner, 1, 0, 1)) == "abcd"
    assert await texts(reader, at(owner, 0, 0, 2)) == "cdef"
    assert await texts(reader, at(owner, 0, 0, 1), end=at(owner, 1, 0, 2)) == "bcde"


async def test_all_fields_of_a_message(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([pulsar_entry(b"x", time_ms=5, key="k", properties={"a": "b"}, sequence=9)])
    (message,) = [message async for message in (await readers.open(NAME)).read()]
    assert message == StreamMessage(at(owner, 0, 0), b"x", "k", {"a": "b"}, 5, None, "p", 9)


async def test_a_raw_stream(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([b"anything", b"", one("a")])
    reader = await readers.open(NAME, entry_format="raw")
    messages = [message async for message in reader.read()]
    assert [message.data for message in messages] == [b"anything", b"", one("a")]
    assert (messages[0].key, messages[0].publish_time, messages[0].producer, messages[0].sequence) == (None,) * 4
    by_time: list[dict[str, Any]] = [{"start_time": 5}, {"end_time": 5}]
    for times in by_time:
        with pytest.raises(UsageError, match="raw"):
            reader.read(**times)
    with pytest.raises(UsageError, match="raw"):
        await reader.position_at(5)


async def test_a_broken_entry_in_the_middle(owner: ListedStream, readers: StreamReaders, cluster: SmallCluster) -> None:
    await owner.create([one("a"), b"no message", one("b")], [one("c")])
    reader, said = await readers.open(NAME), list[bytes]()
    with pytest.raises(CorruptEntry) as told:
        async for message in reader.read():
            said.append(message.data)
    assert said == [b"a"] and (told.value.stream, told.value.position) == (NAME, at(owner, 0, 1))
    assert await texts(reader, on_corrupt="skip") == "abc"
    event = next(event for event in cluster.events if event.kind == "entry left out")
    assert event.fields["position"] == str(at(owner, 0, 1))
    raw = await readers.open(NAME, entry_format="raw")
    assert len(await positions(raw)) == 4


async def damage(cluster: SmallCluster, position: Position, data: bytes | None) -> None:
    """Replace, or lose, an entry on all bookies."""
    for bookie in cluster.bookies.values():
        if data is None:
            del bookie.entries[position[:2]]
        else:
            kept = dict(bookie.entries)
            kept[position[:2]] = kept[position[:2]][:-1] + data
            bookie.keep_only(kept)


@pytest.mark.parametrize(("data", "kind"), [(b"\xff", CorruptEntry), (None, NoSuchEntry)])
async def test_an_entry_that_no_bookie_has_whole(
    owner: ListedStream, readers: StreamReaders, cluster: SmallCluster, data: bytes | None, kind: type[Exception]
) -> None:
    """All before it is delivered, though it was read in one with it."""
    await owner.create([one(letter) for letter in "abcdefgh"])
    await damage(cluster, at(owner, 0, 2), data)
    await damage(cluster, at(owner, 0, 5), data)
    reader, said = await readers.open(NAME), list[bytes]()
    with pytest.raises(kind) as told:
        async for message in reader.read():
            said.append(message.data)
    assert b"".join(said) == b"ab"
    if isinstance(told.value, CorruptEntry):
        assert told.value.position == at(owner, 0, 2)
    assert await texts(reader, at(owner, 0, 3), end=at(owner, 0, 5)) == "de"
    assert await texts(reader, on_corrupt="skip") == "abdegh"
    assert cluster.kinds().count("entry left out") == 2


async def test_a_stream_that_is_not_there(reader: StreamReader, readers: StreamReaders, owner: ListedStream) -> None:
    with pytest.raises(NoSuchStream):
        await readers.open("tenant/ns/persistent/other")
    await owner.delete()
    for call in (reader.last_confirmed(), reader.first(), reader.position_at(0), texts(reader)):
        with pytest.raises(NoSuchStream) as told:
            await call
        assert told.value.stream == NAME


async def test_a_listed_ledger_that_is_lost(reader: StreamReader, owner: ListedStream, cluster: SmallCluster) -> None:
    await owner.client.delete_ledger(owner.info.ledgers[1].ledger)
    with pytest.raises(NoSuchLedger, match="lists a ledger that is deleted"):
        await texts(reader)


async def test_a_ledger_that_was_offloaded_is_told_at_once(reader: StreamReader, owner: ListedStream) -> None:
    first, *rest = owner.info.ledgers
    offload = b"\x08\x01\x10\x01\x18\x01"  # uid 1:1, complete
    await owner.write(StreamInfo((first._replace(offload=offload, is_offloaded=True), *rest)))
    await owner.client.delete_ledger(first.ledger)
    began = asyncio.get_running_loop().time()
    with pytest.raises(NoSuchLedger, match="offloaded"):
        await texts(reader)
    assert asyncio.get_running_loop().time() - began < 1.0
    assert await texts(reader, at(owner, 1, 0)) == "cde"


async def test_wrong_arguments(reader: StreamReader, readers: StreamReaders) -> None:
    wrong: list[dict[str, Any]] = [
        {"start": 7},
        {"start": (1,)},
        {"start": ("1", 2)},
        {"end": (0, 1)},
        {"start": "1:"},
        {"start": datetime.now(UTC)},
        {"end": b"1:2"},
        {"start": Position(-3, 0)},
        {"start_time": "yesterday"},
        {"start_time": datetime(2026, 1, 1)},
        {"start_time": -1},
        {"start_time": 1.5},
        {"start": "1:2", "start_time": 5},
        {"end": "1:2", "end_time": 5},
        {"follow": 1},
        {"on_corrupt": "ignore"},
    ]
    for arguments in wrong:
        with pytest.raises(UsageError):
            reader.read(**arguments)
    for name in ("a/b", "tenant/ns/persistent/..", 7):
        with pytest.raises(UsageError):
            readers.open(name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pulsar, raw"):
        readers.open(NAME, entry_format="avro")
    with pytest.raises(UsageError):
        await reader.position_at(None)  # type: ignore[arg-type]


async def test_a_reader_that_is_closed(reader: StreamReader, readers: StreamReaders) -> None:
    reading, following = reader.read(), reader.read(follow=True)
    assert (await anext(reading)).data == b"a"
    for expected in b"abcde":
        assert (await anext(following)).data == bytes([expected])
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0.1)
    await reader.close()
    await reader.close()
    with pytest.raises(StreamClosed):
        await waiting
    with pytest.raises(StreamClosed):  # though it has read the others by now
        await anext(reading)
    for call in (reader.first(), reader.last_confirmed(), reader.position_at(0)):
        with pytest.raises(StreamClosed):
            await call
    with pytest.raises(StreamClosed):
        reader.read()
    assert "closed" in repr(reader)
    async with readers.open(NAME) as another:
        assert await texts(another) == "abcde"


async def test_ten_thousand_messages_of_one_entry_leave_turns_to_others(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create([pulsar_entry(*(b"%d" % number for number in range(10_000)))])
    reader, turns = await readers.open(NAME), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    messages = reader.read()
    await anext(messages)
    running = asyncio.create_task(others())
    assert len([message async for message in messages]) == 9_999
    running.cancel()
    assert turns >= 15


async def test_the_first_entry_is_not_in_a_ledger_without_any(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([one("a")])
    ledger, newest = owner.info.ledgers
    empty = StreamLedger(ledger.ledger, timestamp_ms=1)
    await owner.write(StreamInfo((empty, newest)))
    assert await (await readers.open(NAME)).first() == Position(newest.ledger, 0)


async def test_a_list_that_nobody_reads_is_not_watched(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([one("a")])
    one_reader, other = await readers.open(NAME), await readers.open(NAME)
    await one_reader.close()
    await one_reader.close()
    assert NAME in readers.lists._lists
    await other.close()
    assert not readers.lists._lists


async def test_a_follower_to_the_first_message_of_an_entry_does_not_wait_for_it(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create()
    (last,) = await owner.append(one("a"))
    end = Position(last.ledger, last.entry + 1, 0)
    async with asyncio.timeout(60):
        assert await texts(await readers.open(NAME), end=end, follow=True) == "a"
