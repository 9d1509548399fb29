"""The cursors that a streaming query moves behind itself."""

from __future__ import annotations

import asyncio

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry
from support.small_cluster import SmallCluster
from support.stream_partitions import wanted
from support.waiting import until
from tallystick.bookkeeper.stream.cursor import Cursor
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import PositionTrimmed
from tallystick.pipeline import listing
from tallystick.pipeline.stream import progress
from tallystick.pipeline.stream.follow import StreamFollower
from tallystick.pipeline.stream.offsets import Positions
from tallystick.pipeline.stream.options import StreamSourceOptions
from tallystick.pipeline.stream.plan import StreamPartition
from tallystick.pipeline.stream.planner import StreamDecisions
from tallystick.pipeline.trigger import TriggerLimits

OPTIONS = wanted(follows=True, cursor="etl", startingOffsets="earliest")


async def mark_of(cluster: SmallCluster) -> Position:
    """Where the cursor is stored to be."""
    client = cluster.client(77)
    async with client.cursor(NAME, "etl", create=False, takeover=True) as cursor:
        return cursor.mark


class Planner:
    """One planner process of a query."""

    def __init__(self, cluster: SmallCluster, seed: int, options: StreamSourceOptions = OPTIONS) -> None:
        self.decisions = StreamDecisions(options)
        self.follower = StreamFollower(cluster.client(seed), options)

    async def initial(self) -> Positions:
        return await self.decisions.initial(self.follower)

    async def latest(self, positions: Positions) -> Positions:
        return await self.decisions.latest(self.follower, positions, TriggerLimits())

    async def partitions(self, start: Positions, end: Positions) -> list[StreamPartition]:
        return await self.decisions.partitions(self.follower, start, end)

    async def commit(self, positions: Positions) -> None:
        await self.decisions.commit(self.follower, positions)


async def test_a_cursor_is_made_at_the_start_and_keeps_what_is_not_read(cluster: SmallCluster) -> None:
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        kept = await stream.append(b"0")
        planner = Planner(cluster, 11)
        start = await planner.initial()
        await stream.append(b"1")
        await stream.roll_over()
        last = await stream.append(b"2")
        assert await stream.trim() == [] and start == {NAME: Position(kept.ledger, 0)}
        await asyncio.sleep(0.3)  # it tells its LAC
        end = await planner.latest(start)
        assert end == {NAME: Position(last.ledger, 1)}
        await planner.commit({NAME: Position(last.ledger, 0)})
        assert await mark_of(cluster) == Position(last.ledger, -1)
        assert await stream.trim() == [kept.ledger]


async def test_what_is_read_while_a_cursor_is_moved_is_told_behind_that(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no next batch for hours, and a stream keeps what its cursors have not passed."""
    monkeypatch.setattr(progress, "MOMENT_S", 0.01)
    async with cluster.client(3).open_stream(NAME, settings=StreamSettings(ensemble=3)) as stream:
        first, *_ = [await stream.append(b"%d" % number) for number in range(4)]
        planner = Planner(cluster, 11)
        await planner.initial()
        go_on, moves, ack_up_to = asyncio.Event(), list[Position](), Cursor.ack_up_to

        async def slow(cursor: Cursor, what: Position) -> None:
            moves.append(what)
            await go_on.wait()
            await ack_up_to(cursor, what)

        monkeypatch.setattr(Cursor, "ack_up_to", slow)
        for count in (1, 2, 3):
            await planner.commit({NAME: Position(first.ledger, count)})
        assert moves == [Position(first.ledger, 0)]
        go_on.set()
        assert planner.follower.cursors is not None
        await until(lambda: not planner.follower.cursors._moves)  # type: ignore[union-attr]  # it is there
        assert moves == [Position(first.ledger, 0), Position(first.ledger, 2)]
        assert await mark_of(cluster) == Position(first.ledger, 2)


async def test_a_stream_that_is_new_is_kept_from_the_batch_on_with_which_it_enters(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch may come late, and retention does not wait for it."""
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    options = wanted(follows=True, cursor="etl", subscribePattern="tenant/ns/.*", startingOffsets="earliest")
    planner = Planner(cluster, 11, options)
    assert await planner.initial() == {}
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        first = await stream.append(b"0")
        assert await planner.latest({}) == {NAME: first}
        await stream.roll_over()
        await stream.append(b"1")
        assert not await trimmed(cluster, first, stream)


async def test_the_next_start_moves_what_the_last_batch_left(cluster: SmallCluster) -> None:
    async with cluster.client(3).open_stream(NAME) as stream:
        positions = [await stream.append(b"%d" % number) for number in range(3)]
        await asyncio.sleep(0.3)
        planner = Planner(cluster, 11)
        end = await planner.latest(await planner.initial())
        assert await mark_of(cluster) == positions[0]._replace(entry=-1)  # and it took the cursor over
        await planner.commit(end)  # which is no error: another one moves it now
        assert await mark_of(cluster) == positions[0]._replace(entry=-1)
        after = Planner(cluster, 12)
        assert await after.latest(end) == end
        assert await mark_of(cluster) == positions[-1]


async def test_a_cursor_is_never_moved_back(cluster: SmallCluster) -> None:
    async with cluster.client(3).open_stream(NAME) as stream:
        positions = [await stream.append(b"%d" % number) for number in range(3)]
        async with cluster.client(4).cursor(NAME, "etl") as cursor:
            await cursor.ack_up_to(positions[1])
        await Planner(cluster, 11).initial()
        assert await mark_of(cluster) == positions[1]


async def test_a_stream_that_another_owner_writes_gets_no_cursor(
    cluster: SmallCluster, owner: ListedStream, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a Pulsar broker does."""
    await owner.create([pulsar_entry(b"0")])
    planner = Planner(cluster, 11)
    end = await planner.latest(await planner.initial())
    await planner.commit(end)
    assert end == {NAME: Position(owner.info.ledgers[-1].ledger, 0)}
    notes = capsys.readouterr().err
    assert notes.count("no cursor is moved") == 1 and "a Pulsar broker may have the stream" in notes
    assert await owner.catalog.creation(NAME, "etl") is None


async def test_bookies_that_are_down_hold_up_no_batch(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MOMENT_S", 0.1)
    async with cluster.client(3).open_stream(NAME) as stream:
        positions = [await stream.append(b"%d" % number) for number in range(3)]
        await asyncio.sleep(0.3)
        planner = Planner(cluster, 11)
        end = await planner.latest(await planner.initial())
        await planner.commit({NAME: positions[1]})
        await cluster.down("b0", "b1", "b2")
        assert end[NAME] > positions[1], "there is something to move, and nobody to write it to"
        async with asyncio.timeout(5):
            await planner.commit(end)
            await planner.commit(end)


async def test_a_ledger_that_the_query_had_read_is_no_loss_though_it_is_deleted_while_the_query_is_away(
    cluster: SmallCluster,
) -> None:
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        read = await stream.append(b"0")
        await asyncio.sleep(0.3)
        planner = Planner(cluster, 11)
        end = await planner.latest(await planner.initial())
        await planner.commit(end)
        await stream.roll_over()
        kept = await stream.append(b"1")
        await until(lambda: trimmed(cluster, read))
        after = Planner(cluster, 12)
        [partition] = await after.partitions(end, {NAME: kept._replace(entry=1)})  # of a batch that was begun before
        assert [(range_.ledger, range_.first) for range_ in partition.ranges[0].ranges] == [(kept.ledger, 0)]
        await asyncio.sleep(0.3)
        assert await Planner(cluster, 13).latest(end) == {NAME: kept._replace(entry=1)}


async def test_what_was_deleted_while_its_cursor_was_not_there_is_lost(cluster: SmallCluster) -> None:
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        await stream.append(b"0")
        await asyncio.sleep(0.3)
        planner = Planner(cluster, 11)
        end = await planner.latest(await planner.initial())
        await planner.commit(end)
        unread = await stream.append(b"1")
        await stream.roll_over()
        await stream.append(b"2")
        await cluster.client(79).delete_cursor(NAME, "etl", takeover=True)
        await until(lambda: trimmed(cluster, unread, stream))
        with pytest.raises(PositionTrimmed, match="rows may be lost"):
            await Planner(cluster, 12).latest(end)


async def test_what_a_later_checkpoint_had_read_is_lost_to_an_older_copy_of_it(cluster: SmallCluster) -> None:
    """Where its rows went may be an older copy, too."""
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        read = await stream.append(b"0")
        planner = Planner(cluster, 11)
        older = await planner.initial()
        await stream.roll_over()
        for number in range(1, 3):
            last = await stream.append(b"%d" % number)
        await asyncio.sleep(0.3)
        await planner.commit(await planner.latest(older))
        assert await mark_of(cluster) == last
        await until(lambda: trimmed(cluster, read, stream))
        with pytest.raises(PositionTrimmed, match="rows may be lost"):
            await Planner(cluster, 12).latest(older)


async def test_what_expired_before_the_query_had_read_it_is_lost(cluster: SmallCluster) -> None:
    ttl_s = 2.0
    settings = StreamSettings(ensemble=3, retention_s=0.0, retention_bytes=0, ttl_s=ttl_s)
    async with cluster.client(3).open_stream(NAME, settings=settings) as stream:
        read = await stream.append(b"0")
        await asyncio.sleep(0.3)
        planner = Planner(cluster, 11)
        end = await planner.latest(await planner.initial())
        await planner.commit(end)
        await stream.append(b"1")
        await asyncio.sleep(ttl_s + 0.1)
        await stream.trim()
        await stream.roll_over()
        await stream.append(b"2")  # which is not that old
        await until(lambda: trimmed(cluster, read, stream))
        with pytest.raises(PositionTrimmed, match="rows may be lost"):
            await Planner(cluster, 12).latest(end)


async def trimmed(cluster: SmallCluster, position: Position, stream: Stream | None = None) -> bool:
    if stream is not None:
        await stream.trim()
    listed = await cluster.client(78).stream_context.catalog.read(NAME, synced=True)
    return all(each.ledger > position.ledger for each in listed.value.ledgers)
