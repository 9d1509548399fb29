"""Who owns a cursor when its lease, or its handle, has come to an end and somebody begins again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.cursors import text
from support.small_cluster import SmallCluster
from support.streams import NAME
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import StreamClosed, StreamFenced


@pytest.fixture
async def stream(cluster: SmallCluster) -> AsyncIterator[Stream]:
    """Of three messages."""
    async with cluster.client(1).open_stream(NAME) as opened:
        for letter in "abc":
            await opened.append(letter.encode())
        await asyncio.sleep(0.3)  # the idle owner says how far it is
        yield opened


@pytest.fixture
async def bk(cluster: SmallCluster) -> BookKeeper:
    return cluster.client(2)


async def lose_lease(cluster: SmallCluster, bk: BookKeeper) -> None:
    """Its node is gone, as with the session."""
    await cluster.store.change(Delete(bk.stream_context.catalog.paths.owner(NAME, "billing")))


async def test_a_lease_that_is_regained_with_nobody_in_between_changes_nothing(
    cluster: SmallCluster, stream: Stream, bk: BookKeeper
) -> None:
    async with bk.cursor(NAME, "billing") as cursor:
        await cursor.ack((await cursor.read(1))[0])
        await lose_lease(cluster, bk)
        await asyncio.sleep(30)
        assert text(await cursor.read()) == "bc"
        await cursor.ack(Position(0, 1))
        assert cursor.mark == Position(0, 1)
    assert not {"cursor fenced", "lease lost", "cursor ledger failed"} & set(cluster.kinds())


async def test_a_cursor_hears_that_another_owner_came_and_went(
    cluster: SmallCluster, stream: Stream, bk: BookKeeper
) -> None:
    cursor = await bk.cursor(NAME, "billing")
    await lose_lease(cluster, bk)
    async with cluster.client(3).cursor(NAME, "billing") as other:
        await other.ack_up_to(Position(0, 2))
    await asyncio.sleep(30)  # it has its lease again
    with pytest.raises(StreamFenced):
        await cursor.read(wait=False)
    await cursor.close()


async def test_a_cursor_whose_lease_was_lost_and_that_is_deleted_hears_of_it(
    cluster: SmallCluster, stream: Stream, bk: BookKeeper
) -> None:
    cursor = await bk.cursor(NAME, "billing")
    await lose_lease(cluster, bk)
    await cluster.client(3).delete_cursor(NAME, "billing")
    await asyncio.sleep(30)
    with pytest.raises(StreamFenced):
        await cursor.read(wait=False)
    await cursor.close()


async def test_what_was_stopped_is_opened_again_at_what_is_stored(
    cluster: SmallCluster, stream: Stream, bk: BookKeeper
) -> None:
    for opener in (bk, cluster.client(3), bk):
        cursor = await opener.cursor(NAME, "billing")
        mark = cursor.mark
        assert text(await cursor.read(1)) == "abc"[mark.entry + 1]
        await cursor.ack_up_to(Position(0, mark.entry + 1))
        cursor.abort()
        with pytest.raises(StreamClosed):
            await cursor.read()
        await cursor.close()  # there is nothing to do
    async with bk.cursor(NAME, "billing") as cursor:
        assert cursor.mark == Position(0, 2)


async def test_a_cursor_that_was_taken_over_and_stopped_is_opened_again(
    cluster: SmallCluster, stream: Stream, bk: BookKeeper
) -> None:
    cursor = await bk.cursor(NAME, "billing")
    other = await cluster.client(3).cursor(NAME, "billing", takeover=True)
    cursor.abort()
    await other.ack_up_to(Position(0, 1))
    await other.close()
    async with bk.cursor(NAME, "billing") as again:
        assert again.mark == Position(0, 1)


async def test_a_stream_that_was_stopped_and_taken_over_is_opened_again(cluster: SmallCluster, bk: BookKeeper) -> None:
    stopped = await bk.open_stream(NAME)
    await stopped.append(b"a")
    stopped.abort()
    other = await cluster.client(3).open_stream(NAME, takeover=True)
    await other.append(b"b")
    await other.close()
    async with bk.open_stream(NAME) as again:
        await again.append(b"c")
    async with bk.read_stream(NAME) as reader:
        assert text([message async for message in reader.read()]) == "abc"
