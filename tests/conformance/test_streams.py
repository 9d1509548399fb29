"""Streams in each kind of coordination service: owners, cursors, numbers, what is trimmed, what is deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.fake_bookie import FakeBookie
from support.machines import machine
from support.waiting import until
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, Position, StreamInfo, StreamLedger
from tallystick.errors import NoSuchStream, StreamFenced, StreamOwned, StreamTerminated

if TYPE_CHECKING:
    from conformance.conftest import Place

NAME = "tenant/ns/persistent/topic"
SMALL = StreamSettings(max_entries_per_ledger=4)
DEDUPLICATION = "pulsar.dedup"


class Clients:
    """Clients of one cluster, each as in a process of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._made: list[BookKeeper] = []

    async def new(self, owner: str) -> BookKeeper:
        """``owner`` is who others are told owns its streams."""
        driver = await self._place.connect()
        made = BookKeeper(driver, machine(), ClientSettings(), StreamClientSettings(owner=owner, stream=SMALL))
        self._made.append(made)
        return made

    async def close(self) -> None:
        for client in self._made:
            await client.close()


@pytest.fixture
async def clients(bookies: list[FakeBookie], cluster: Place) -> AsyncIterator[Clients]:
    made = Clients(cluster)
    yield made
    await made.close()


@pytest.fixture
async def one(clients: Clients) -> BookKeeper:
    return await clients.new("one")


@pytest.fixture
async def other(clients: Clients) -> BookKeeper:
    return await clients.new("other")


async def append(stream: Stream, first: int, last: int) -> list[Position]:
    return await asyncio.gather(*(stream.append_nowait(b"%d" % number) for number in range(first, last + 1)))


async def numbers(bk: BookKeeper) -> list[int]:
    """All that can be read of the stream."""
    async with bk.read_stream(NAME) as reader:
        return [int(message.data) async for message in reader.read()]


async def ledgers(bk: BookKeeper) -> list[int]:
    return [ledger async for ledger in bk.context.driver.ledgers()]


# -- owners ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("Q19")
async def test_q19_a_stream_has_one_owner_of_which_others_are_told(one: BookKeeper, other: BookKeeper) -> None:
    before = time.time() * 1000
    async with one.open_stream(NAME) as stream:
        await append(stream, 0, 4)
        with pytest.raises(StreamOwned) as owned:
            await other.open_stream(NAME)
        assert owned.value.owner == "one"
        assert owned.value.since_ms is not None and before - 1 <= owned.value.since_ms <= time.time() * 1000
    async with other.open_stream(NAME) as stream:
        assert [position.entry for position in await append(stream, 5, 6)] == [0, 1]
    assert await numbers(one) == list(range(7))


@pytest.mark.rule("Q19")
async def test_q19_who_waits_for_a_stream_hears_that_its_owner_closed_it(one: BookKeeper, other: BookKeeper) -> None:
    first = await one.open_stream(NAME)
    await append(first, 0, 0)
    opening = asyncio.create_task(wait_for_it(other))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(opening), 0.2)
    closed_at = time.monotonic()
    await first.close()
    second = await opening
    assert time.monotonic() - closed_at < 9.0, "that is before the lease would end"
    await append(second, 1, 1)
    await second.close()
    assert await numbers(one) == [0, 1]


async def wait_for_it(bk: BookKeeper) -> Stream:
    return await bk.open_stream(NAME, wait_s=60.0)


@pytest.mark.rule("Q19")
async def test_q19_an_owner_that_was_taken_over_appends_nothing(one: BookKeeper, other: BookKeeper) -> None:
    old = await one.open_stream(NAME)
    await append(old, 0, 5)
    new = await other.open_stream(NAME, takeover=True)
    with pytest.raises(StreamFenced):
        await old.append(b"7000")
    await append(new, 6, 9)
    with pytest.raises(StreamFenced):
        await old.roll_over()
    await old.close()
    await append(new, 10, 10)
    await new.close()
    assert await numbers(one) == list(range(11))
    assert await one.stream_context.catalog.going(NAME) == []


@pytest.mark.rule("Q19")
async def test_q19_of_several_who_take_over_at_one_time_one_appends(clients: Clients) -> None:
    rivals = [await clients.new(f"rival {number}") for number in range(4)]
    outcomes = await asyncio.gather(
        *(rival.open_stream(NAME, takeover=True) for rival in rivals), return_exceptions=True
    )
    streams = [each for each in outcomes if isinstance(each, Stream)]
    assert streams and all(isinstance(each, Stream | StreamFenced | StreamOwned) for each in outcomes)
    appends = await asyncio.gather(*(each.append(b"0") for each in streams), return_exceptions=True)
    assert [type(each) for each in appends if not isinstance(each, StreamFenced)] == [Position]
    for each in streams:
        await each.close()
    assert await numbers(rivals[0]) == [0]


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("Q18")
async def test_q18_a_follower_hears_of_new_ledgers_and_of_the_end(one: BookKeeper, other: BookKeeper) -> None:
    async with one.open_stream(NAME) as stream, other.read_stream(NAME) as reader:
        await append(stream, 0, 0)
        read: list[int] = []

        async def follow() -> None:
            read.extend([int(message.data) async for message in reader.read(follow=True)])

        following = asyncio.create_task(follow())
        await append(stream, 1, 9)
        last = await stream.terminate()
        with pytest.raises(StreamTerminated):
            await stream.append(b"too late")
        await asyncio.wait_for(following, 20)
        assert read == list(range(10)) and last.entry == 1
    info = (await other.stream_context.catalog.read(NAME, synced=True)).value
    assert [each.entries for each in info.ledgers] == [4, 4, 0] and info.terminated == last, "as a broker stores it"


async def test_a_long_list_is_compared_and_set(one: BookKeeper, other: BookKeeper) -> None:
    """It is compressed then, as a broker does it."""
    mine, others = one.stream_context.catalog, other.stream_context.catalog
    stored = await mine.create(NAME)
    long = StreamInfo(tuple(StreamLedger(number, 50_000, 100 << 20, 1 + number) for number in range(10_000)))
    version = await mine.write(NAME, long, stored.version)
    read = await others.read(NAME, synced=True)
    assert read.value == long and read.version == version
    with pytest.raises(StreamFenced):
        await others.write(NAME, StreamInfo(), stored.version)
    await others.write(NAME, StreamInfo(), version)
    with pytest.raises(StreamFenced):
        await mine.write(NAME, long, version)
    assert (await mine.read(NAME, synced=True)).value == StreamInfo()


async def test_streams_are_listed_by_their_prefix(one: BookKeeper, other: BookKeeper) -> None:
    topics = "a/n/persistent/t", "a/n/persistent/t-2", "a/n/persistent/my%2Ftopic+1", "a/n2/persistent/t"
    names = [*topics, "b/n/persistent/%C3%BC"]
    for name in names:
        async with one.open_stream(name):
            pass
    assert [name async for name in other.streams()] == sorted(names)
    assert [name async for name in other.streams("a/n/")] == sorted(names[:3])
    assert [name async for name in other.streams("a/n/persistent/t")] == names[:2]


# -- cursors and numbers -----------------------------------------------------------------------------------------------


@pytest.mark.rule("Q19")
@pytest.mark.parametrize("where", ["node", "ledger"])
async def test_a_cursor_comes_to_its_next_owner_with_its_holes(one: BookKeeper, other: BookKeeper, where: str) -> None:
    """One that was closed is in its node; of one whose owner was taken over the ledger says more."""
    async with one.open_stream(NAME) as stream:
        positions = await append(stream, 0, 9)
        cursor = await one.cursor(NAME, "billing")
        messages = await cursor.read(8)
        await cursor.ack_up_to(messages[1])
        await cursor.ack_batch([messages[3], messages[6]])
        with pytest.raises(StreamOwned) as owned:
            await other.cursor(NAME, "billing")
        assert owned.value.owner == "one"
        if where == "node":
            await cursor.close()
        stored = await other.stream_context.catalog.read_cursor(NAME, "billing")
        assert (stored.value.ledger == NO_LEDGER) is (where == "node")
        async with other.cursor(NAME, "billing", takeover=where == "ledger") as next_owner:
            await append(stream, 10, 10)
            rest = [await next_owner.read(1) for _ in range(7)]
            assert [int(message.data) for each in rest for message in each] == [2, 4, 5, 7, 8, 9, 10]
            await next_owner.ack(positions[2])
            assert next_owner.mark == positions[3]
            if where == "ledger":
                with pytest.raises(StreamFenced):
                    await cursor.ack(positions[4])
                await cursor.close()
        async with one.cursor(NAME, "billing") as back:
            assert back.mark == positions[3] and await back.refresh() == 6


@pytest.mark.rule("Q19")
async def test_a_numbered_append_is_stored_once_whoever_owns_the_stream(one: BookKeeper, other: BookKeeper) -> None:
    async def numbered(stream: Stream, *sequences: int) -> list[Position]:
        return [await stream.append(b"%d" % number, producer="p", sequence=number) for number in sequences]

    old = await one.open_stream(NAME)
    positions = await numbered(old, *range(10))
    assert await numbered(old, 3, 9) == [positions[3], positions[9]]
    async with other.open_stream(NAME, takeover=True) as new:  # the old owner saved nothing
        assert await numbered(new, 9) == positions[9:]
        positions += await numbered(new, 10, 11)
    assert await other.stream_context.catalog.cursors(NAME) == [DEDUPLICATION]
    await old.close()
    async with one.open_stream(NAME) as back:  # what the new one saved
        await numbered(back, 0, 11, 12)
    assert await numbers(one) == list(range(13))


# -- what goes ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("Q18")
async def test_q18_what_no_cursor_needs_is_trimmed_and_its_ledgers_go(one: BookKeeper, other: BookKeeper) -> None:
    async with one.open_stream(NAME, settings=replace(SMALL, retention_bytes=0)) as stream:
        cursor = await other.cursor(NAME, "slow")
        positions = await append(stream, 0, 13)
        await until(lambda: is_read(other, list(range(14))))
        await cursor.read(14)
        await cursor.ack_up_to(positions[4])
        await until(lambda: is_trimmed(stream, other, [positions[4].ledger, positions[8].ledger, positions[12].ledger]))
        assert await numbers(other) == list(range(4, 14))
        await cursor.ack_up_to(positions[11])
        await until(lambda: is_trimmed(stream, other, [positions[12].ledger]))
        assert await numbers(other) == [12, 13]
        await one.stream_context.deletions.done()
        of_cursor = (await one.stream_context.catalog.read_cursor(NAME, "slow")).value.ledger
        assert await ledgers(other) == sorted([of_cursor, positions[12].ledger])
        assert await other.stream_context.catalog.going(NAME) == []
        await cursor.close()


async def is_trimmed(stream: Stream, bk: BookKeeper, expected: list[int]) -> bool:
    """The newest acknowledgement is read as any reader reads: once the ledger of the cursor says that it is stored."""
    await stream.trim()
    listed = [each.ledger for each in (await bk.stream_context.catalog.read(NAME, synced=True)).value.ledgers]
    assert set(expected) <= set(listed)
    return listed == expected


async def is_read(bk: BookKeeper, expected: list[int]) -> bool:
    return await numbers(bk) == expected


@pytest.mark.rule("Q18")
async def test_q18_nothing_is_left_of_a_deleted_stream(one: BookKeeper, other: BookKeeper, cluster: Place) -> None:
    stream = await one.open_stream(NAME)
    await stream.append(b"0", producer="p", sequence=0)
    await append(stream, 1, 9)
    cursor = await one.cursor(NAME, "billing")
    await cursor.ack((await cursor.read(1))[0])
    with pytest.raises(StreamOwned):
        await other.delete_stream(NAME)
    await other.delete_stream(NAME, takeover=True)
    with pytest.raises(StreamFenced):
        await stream.append(b"too late")
    await stream.close()
    cursor.abort()
    with pytest.raises(NoSuchStream):
        await other.read_stream(NAME)
    assert [name async for name in other.streams()] == [] and await ledgers(other) == []
    driver = other.context.driver
    assert isinstance(driver, ClusterMetadata)
    paths = other.stream_context.catalog.paths
    assert await driver.store.get(paths.going(NAME)) is None
    async with other.open_stream(NAME) as again:
        assert again.last_confirmed == Position(-1, -1)
