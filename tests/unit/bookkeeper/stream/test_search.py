"""Places in a stream by time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.listed_streams import NAME, ListedStream, pulsar_entry, readers_of
from support.machines import virtual_loop
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.stream import search
from tallystick.bookkeeper.stream.entries import EntryWalk
from tallystick.bookkeeper.stream.reader import StreamReader, StreamReaders
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import CorruptEntry, NoSuchLedger


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return ListedStream(cluster.client())


@pytest.fixture
async def readers(cluster: SmallCluster) -> AsyncIterator[StreamReaders]:
    made = readers_of(cluster.client(2))
    yield made
    await made.close()


def timed(*times: int) -> list[bytes]:
    return [pulsar_entry(b"%d" % time, time_ms=time) for time in times]


async def times(reader: StreamReader, **bounds: int | datetime) -> list[int | None]:
    return [message.publish_time async for message in reader.read(**bounds)]  # type: ignore[arg-type]


async def test_the_first_message_of_this_time_or_later(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(timed(10, 20, 20, 30), timed(40, 50), timed(60))
    reader = await readers.open(NAME)
    ledgers = [each.ledger for each in owner.info.ledgers]
    expected = {
        0: (0, 0),
        10: (0, 0),
        11: (0, 1),
        20: (0, 1),
        21: (0, 3),
        31: (1, 0),
        45: (1, 1),
        55: (2, 0),
        61: (3, 0),
    }
    for time, (ledger, entry) in expected.items():
        assert await reader.position_at(time) == Position(ledgers[ledger], entry), time
    assert await times(reader, start_time=21, end_time=50) == [30, 40]
    assert await times(reader, start_time=61) == []


async def test_one_time_in_several_ledgers_is_found_where_it_begins(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create(timed(10, 20), timed(20, 20), timed(20, 30))
    reader = await readers.open(NAME)
    assert await reader.position_at(20) == Position(owner.info.ledgers[0].ledger, 1)
    assert await times(reader, start_time=20) == [20, 20, 20, 20, 30]
    assert await times(reader, end_time=20) == [10]


async def test_what_was_published_before_the_first_that_is_wanted_and_stored_behind_it_is_read(
    owner: ListedStream, readers: StreamReaders
) -> None:
    """Producers' clocks differ: who reads on from there would miss it."""
    await owner.create(timed(10, 20, 20, 20, 20, 12), timed(30))
    assert await times(await readers.open(NAME), start_time=15) == [20, 20, 20, 20, 12, 30]


async def test_of_the_open_ledger_what_is_confirmed(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(timed(10))
    reader, newest = await readers.open(NAME), owner.info.ledgers[-1].ledger
    assert await reader.position_at(15) == Position(newest, 0)
    await owner.append(*timed(20, 30))
    await owner.tell_lac()
    assert await reader.position_at(25) == Position(newest, 1)
    assert await reader.position_at(35) == Position(newest, 2)


async def test_a_stream_without_anything(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.catalog.create(NAME)
    reader = await readers.open(NAME)
    assert await reader.position_at(5) == Position(0, 0)
    assert await times(reader, start_time=5) == []


async def test_datetimes(owner: ListedStream, readers: StreamReaders) -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 8000, tzinfo=UTC)
    ms = int(moment.timestamp()) * 1000 + 8
    await owner.create(timed(ms - 1, ms, ms + 1))
    reader = await readers.open(NAME)
    here = moment.astimezone(timezone(timedelta(hours=-7)))
    assert await times(reader, start_time=here) == [ms, ms + 1]
    assert await times(reader, end_time=here) == [ms - 1]
    assert len(await times(reader, start_time=datetime(1, 1, 1, tzinfo=UTC))) == 3


async def test_the_reads_grow_with_the_logarithm(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.create(*(timed(*(100 * ledger + entry for entry in range(64))) for ledger in range(32)))
    reader, reads = await readers.open(NAME), 0
    inner = search._next_time

    async def counting(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return await inner(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "_next_time", counting)
    assert await reader.position_at(1737) == Position(owner.info.ledgers[17].ledger, 37)
    assert reads <= 6 + 7


async def test_entries_that_say_no_time_are_passed_over(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([b"junk", *timed(10), b"junk", b"junk", *timed(20), b"junk"], [b"junk"], timed(30))
    reader = await readers.open(NAME)
    ledgers = [each.ledger for each in owner.info.ledgers]
    assert await reader.position_at(15) == Position(ledgers[0], 4)
    read = [message.publish_time async for message in reader.read(start_time=15, on_corrupt="skip")]
    assert read == [20, 30]


async def test_a_stream_of_other_entries(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create([b"junk"] * (search.MOST_DAMAGED + 2))
    with pytest.raises(CorruptEntry, match="when they were published"):
        await (await readers.open(NAME)).position_at(5)


@pytest.mark.parametrize(("damaged", "is_found"), [(3, True), (4, False)])
async def test_so_many_entries_that_say_no_time_are_passed_over(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch, damaged: int, is_found: bool
) -> None:
    monkeypatch.setattr(search, "MOST_DAMAGED", 3)
    await owner.create([b"junk"] * damaged + timed(10))
    looking = (await readers.open(NAME)).position_at(5)
    if is_found:
        assert await looking == Position(owner.info.ledgers[0].ledger, 0)
    else:
        with pytest.raises(CorruptEntry, match="3 entries one behind the other"):
            await looking


async def test_a_search_keeps_no_ledger_open(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who follows a stream from some time on would hold them as long as it reads."""
    await owner.create(*(timed(100 * ledger) for ledger in range(8)))
    inner, most_open = EntryWalk.reader, [0]

    async def opened(walk: EntryWalk, ledger: int) -> LedgerReader:
        found = await inner(walk, ledger)
        most_open.append(len(walk._open_readers))
        return found

    monkeypatch.setattr(EntryWalk, "reader", opened)
    following = (await readers.open(NAME)).read(start_time=350, follow=True)
    assert (await anext(following)).publish_time == 400
    assert max(most_open) == 2, "that of the newest ledger, whose end is asked for, and the one that is looked at"
    await following.aclose()


async def test_a_ledger_that_is_trimmed_during_the_search(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(timed(10), timed(20), timed(30))
    reader = await readers.open(NAME)
    inner, trimmed = reader._list.sync, False

    async def trim_then() -> object:
        nonlocal trimmed
        info = await inner()
        if not trimmed:
            trimmed = True
            await owner.trim(2)
        return info

    reader._list.sync = trim_then  # type: ignore[method-assign, assignment]
    assert await reader.position_at(5) == Position(owner.info.ledgers[0].ledger, 0)


async def test_a_follower_from_a_time_that_is_to_come(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(timed(10))
    following = (await readers.open(NAME)).read(start_time=50, follow=True, end_time=70)
    first = asyncio.ensure_future(anext(following))
    await asyncio.sleep(1.0)
    await owner.append(*timed(20, 60, 40, 80))
    assert [(await first).publish_time, *[message.publish_time async for message in following]] == [60, 40]


async def test_a_ledger_that_is_deleted_while_it_is_looked_at(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.create(timed(10), timed(20), timed(30))
    reader, inner = await readers.open(NAME), search._next_time

    async def deleted(looked_at: LedgerReader, first: int, last: int) -> object:
        if looked_at.id == owner.info.ledgers[1].ledger and len(owner.info.ledgers) == 4:
            await owner.trim(2)
            raise NoSuchLedger(ledger=looked_at.id)
        return await inner(looked_at, first, last)

    monkeypatch.setattr(search, "_next_time", deleted)
    assert await reader.position_at(5) == Position(owner.info.ledgers[0].ledger, 0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4), st.integers(0, 40))
def test_as_a_search_one_by_one(steps: list[list[int]], sought: int) -> None:
    """Where times do not run backwards the result is that of reading all."""

    async def run() -> None:
        cluster = await SmallCluster().start(3)
        owner, time = ListedStream(cluster.client()), 0
        all_times: list[list[int]] = []
        for ledger in steps:
            all_times.append([time := time + step for step in ledger])
        await owner.create(*(timed(*each) for each in all_times if each))
        readers = readers_of(cluster.client(2))
        reader = await readers.open(NAME)
        later = [time for each in all_times for time in each if time >= sought]
        assert await times(reader, start_time=sought) == later
        assert await times(reader, end_time=sought) == [t for each in all_times for t in each if t < sought]
        assert await reader.position_at(sought) > EARLIEST
        await reader.close()
        await readers.close()
        await cluster.close()

    loop = virtual_loop()
    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
