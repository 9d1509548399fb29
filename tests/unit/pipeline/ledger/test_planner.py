"""What a streaming query of ledgers reads, batch by batch, while they grow, are closed, deleted and made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from support.following_ledgers import FollowingLedgers, rows_of
from support.small_cluster import SmallCluster
from support.spark_workers import close_workers
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import Fragment, LedgerMetadata
from tallystick.errors import NoSuchEntry, NoSuchLedger, Unauthorized, Unavailable, UsageError
from tallystick.pipeline import listing, rounds
from tallystick.pipeline.lag import Lag
from tallystick.pipeline.ledger import follow
from tallystick.pipeline.ledger.offsets import LedgerPositions
from tallystick.pipeline.ledger.plan import LedgerPartition
from tallystick.pipeline.ledger.selection import IdSpan
from tallystick.pipeline.trigger import TriggerLimits

Follow = Callable[..., FollowingLedgers]


@pytest.fixture(autouse=True)
def look_each_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    yield
    close_workers()


@pytest.fixture
async def bk(cluster: SmallCluster) -> AsyncIterator[BookKeeper]:
    yield cluster.client(7)


@pytest.fixture
def query(cluster: SmallCluster) -> Follow:
    def make(**options: str) -> FollowingLedgers:
        return FollowingLedgers(cluster, **options)

    return make


def payloads(*numbers: int) -> list[bytes]:
    return [b"%03d" % number for number in numbers]


async def written(bk: BookKeeper, *numbers: int, **settings: Any) -> LedgerWriter:
    """A ledger that is open."""
    writer = await bk.create_ledger(3, write_quorum=2, ack_quorum=2, **settings)
    await append(writer, *numbers)
    return writer


async def append(writer: LedgerWriter, *numbers: int) -> None:
    for payload in payloads(*numbers):
        await writer.append(payload)


async def closed(bk: BookKeeper, *numbers: int) -> int:
    """The id of a ledger that is closed."""
    writer = await written(bk, *numbers)
    await writer.close()
    return writer.id


async def test_rows_come_once_while_a_ledger_grows_and_is_closed(bk: BookKeeper, query: Follow) -> None:
    writer = await written(bk, 0, 1, 2)
    following = query(ledgers=str(writer.id))
    assert await following.until_read(3) == payloads(0, 1, 2)
    assert following.at == LedgerPositions({writer.id: 3})
    following.restart()
    assert not await following.trigger()
    await append(writer, 3, 4)
    assert await following.until_read(5) == payloads(*range(5))
    await append(writer, 5)
    await writer.close()
    assert await following.until_idle() == payloads(*range(6))
    assert following.at == LedgerPositions({}, (IdSpan(writer.id, writer.id),))
    following.restart()
    assert not await following.trigger()


@pytest.mark.rule("Q6", "Q11")
async def test_q6_nothing_is_fenced_or_read_beyond_the_lac(
    cluster: SmallCluster, bk: BookKeeper, query: Follow
) -> None:
    bk = cluster.client(8, explicit_lac_interval_s=0)  # it tells its LAC with its entries alone
    writer = await written(bk, *range(10))
    following = query()
    assert await following.until_idle() == payloads(*range(9))
    assert not any(bookie.fenced for bookie in cluster.bookies.values())
    await append(writer, 10)
    assert await following.until_idle() == payloads(*range(10))


async def test_a_query_begins_where_its_options_say(bk: BookKeeper, query: Follow) -> None:
    done, writer = await closed(bk, 0, 1, 2), await written(bk)
    latest = query(startingOffsets="latest")
    assert await latest.until_idle() == []
    assert latest.at == LedgerPositions({writer.id: 0}, (IdSpan(done, done),))
    named = query(startingOffsets=f'{{"{done}": 1}}')
    assert await named.until_idle() == payloads(1, 2)
    await append(writer, 3, 4)
    assert await named.until_read(4) == payloads(1, 2, 3, 4)
    with pytest.raises(NoSuchEntry, match="startingOffsets: the ledger does not reach to this entry"):
        await query(startingOffsets=f'{{"{done}": 4}}').trigger()
    with pytest.raises(UsageError, match="startingOffsets names a ledger that the query does not read"):
        await query(startingOffsets='{"77": 0}').trigger()
    with pytest.raises(NoSuchLedger, match="there is no such ledger"):
        await query(ledgers=f"{done},77").trigger()


async def test_new_ledgers_of_a_range_are_read_from_their_first_entry(bk: BookKeeper, query: Follow) -> None:
    first = await closed(bk, 0, 1)
    following = query(ledgers=f"{first}-{first + 2}", startingOffsets="latest")
    assert await following.until_idle() == []
    for number in (2, 3, 4):  # the last one is beyond the range
        await closed(bk, number)
    assert await following.until_idle() == payloads(2, 3)
    assert following.at == LedgerPositions({}, (IdSpan(first, first + 2),))


async def test_a_batch_is_the_same_when_it_is_planned_again(bk: BookKeeper, query: Follow) -> None:
    await closed(bk, *range(5))
    writer = await written(bk, *range(5, 15))
    following = query(maxBytesPerPartition="250")
    start = await following.decisions.initial(following.follower)
    await following.until_read(15)
    end = following.at
    assert end is not None
    planned = await following.partitions(start, end)
    assert len(planned) > 3 and [row[2] for row in await rows_of(planned, following.options)] == payloads(*range(15))
    await writer.append(b"x" * 100_000)
    await writer.close()
    await closed(bk, 16)
    following.restart()
    assert [each.ranges for each in await following.partitions(start, end)] == [each.ranges for each in planned]


async def test_a_batch_is_cut_alike_after_an_ensemble_change(
    cluster: SmallCluster, bk: BookKeeper, query: Follow
) -> None:
    await cluster.add()
    writer = await written(bk, *range(4))
    following = query(maxBytesPerPartition="250")
    start = await following.decisions.initial(following.follower)
    await following.until_read(4)
    await cluster.down(writer.metadata.fragments[-1].bookies[0])
    await append(writer, *range(4, 9))
    assert len(writer.metadata.fragments) == 2
    assert await following.until_read(9) == payloads(*range(9))
    end = following.at
    assert end is not None

    def cuts(partitions: Sequence[LedgerPartition]) -> list[tuple[int, int]]:
        return [(each.ranges[0].first, each.ranges[-1].last) for each in partitions]

    planned = cuts(await following.partitions(start, end))
    assert planned[0][0] == 0 and planned[-1][1] == 8 and len(planned) > 2
    await writer.close()
    following.restart()
    assert cuts(await following.partitions(start, end)) == planned


async def test_limits_are_kept_batch_by_batch(bk: BookKeeper, query: Follow) -> None:
    await closed(bk, *range(8))
    writer = await written(bk, *range(8, 10))
    await writer.close()
    following, sizes = query(maxOffsetsPerTrigger="5"), []
    while await following.trigger():
        sizes.append(len(following.rows))
    assert sorted(following.payloads) == payloads(*range(10)) and sizes == [5, 10]
    by_bytes = query(ledgers="0", maxBytesPerTrigger="9")
    assert await by_bytes.trigger() and by_bytes.payloads == payloads(0, 1, 2)
    assert await by_bytes.trigger(TriggerLimits()) and by_bytes.payloads == payloads(*range(8))


async def test_the_bytes_of_an_open_ledger_count(bk: BookKeeper, query: Follow) -> None:
    await written(bk, *range(6))
    following = query(maxBytesPerTrigger="6")
    await following.until_read(1)
    assert len(following.rows) == 2
    assert await following.until_read(6) == payloads(*range(6))


async def test_nothing_before_there_is_enough(bk: BookKeeper, query: Follow) -> None:
    writer = await written(bk, 0, 1)
    following = query(minOffsetsPerTrigger="3")
    assert not await following.trigger()
    await append(writer, 2)
    assert await following.until_read(3) == payloads(0, 1, 2)


async def test_available_now_ends_where_the_ledgers_were(bk: BookKeeper, query: Follow) -> None:
    done, writer = await closed(bk, 0, 1, 2), await written(bk, 3)
    following = query(maxOffsetsPerTrigger="2")
    await following.decisions.freeze(following.follower)
    await append(writer, 4, 5)
    await closed(bk, 6)
    assert sorted(await following.until_idle())[:3] == payloads(0, 1, 2) and b"006" not in following.payloads
    assert following.at is not None and following.at.has_read(done)
    following.restart()
    assert sorted(await following.until_read(7)) == payloads(*range(7))


async def test_a_ledger_that_is_deleted_before_it_is_read_is_a_loss(
    bk: BookKeeper, query: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, writer = await closed(bk, 0, 1, 2), await written(bk, 3, 4)
    strict, loose = query(maxOffsetsPerTrigger="2"), query(maxOffsetsPerTrigger="2", failOnDataLoss="false")
    for each in (strict, loose):
        assert await each.trigger()
        each.restart()
    await bk.delete_ledger(gone)
    with pytest.raises(NoSuchLedger, match="deleted: rows may be lost; failOnDataLoss=false goes on"):
        await strict.trigger()
    await loose.until_read(len(loose.rows) + 1)
    await append(writer, 5)
    await writer.close()
    assert [row for row in await loose.until_idle() if row > b"002"] == payloads(3, 4, 5)
    assert "the query goes on with what is left" in capsys.readouterr().err


async def test_an_open_ledger_that_is_deleted_while_it_is_followed_is_a_loss(bk: BookKeeper, query: Follow) -> None:
    """It would be followed for ever, at the end that it had."""
    writer = await written(bk, 0, 1)
    following = query()
    await following.until_read(2)
    await bk.delete_ledger(writer.id)
    with pytest.raises(NoSuchLedger, match="deleted: rows may be lost"):
        await following.trigger()


async def test_the_end_of_a_ledger_that_is_not_closed_is_not_made_up(bk: BookKeeper, query: Follow) -> None:
    """An offset may say that it is closed before the metadata do, where these lag: no row is left out."""
    writer, following = await written(bk, 0, 1), query(failOnDataLoss="false")
    start, end = LedgerPositions({writer.id: 0}), LedgerPositions({}, (IdSpan(writer.id, writer.id),))
    with pytest.raises(Unavailable, match="do not say yet that this ledger is closed"):
        await following.partitions(start, end)


async def test_readers_of_ledgers_that_are_closed_are_closed(
    bk: BookKeeper, query: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes, close = list[int](), LedgerReader.close

    async def counted(reader: LedgerReader) -> None:
        closes.append(reader.id)
        await close(reader)

    monkeypatch.setattr(LedgerReader, "close", counted)
    writers, following = [await written(bk, 0), await written(bk, 1)], query()
    await following.until_read(2)
    for writer in writers:
        await writer.close()
    await following.until_idle()
    assert {writer.id for writer in writers} <= set(closes)


async def test_all_that_there_was_is_read_at_last_however_little_it_is(bk: BookKeeper, query: Follow) -> None:
    writer = await written(bk, 0, 1)
    following = query(minOffsetsPerTrigger="9")
    following.at = LedgerPositions({writer.id: 0})
    await following.decisions.freeze(following.follower)  # AvailableNow
    assert await following.trigger()
    assert [row[2] for row in following.rows] == payloads(0)  # the second one is not known to be confirmed


async def test_a_ledger_that_is_deleted_after_it_was_read_is_none(bk: BookKeeper, query: Follow) -> None:
    gone = await closed(bk, 0, 1)
    following = query(ledgers=f"{gone},{gone + 1}-{gone + 9}")
    await following.until_idle()
    await bk.delete_ledger(gone)
    following.restart()
    assert not await following.trigger()
    following.restart()
    await following.decisions.freeze(following.follower)  # AvailableNow, which is told only later what was read
    assert not await following.trigger()
    following.at = None
    with pytest.raises(NoSuchLedger, match="there is no such ledger"):
        await following.trigger()


async def test_a_ledger_that_is_deleted_once_its_batch_is_planned(
    bk: BookKeeper, query: Follow, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, _ = await closed(bk, 0, 1), await closed(bk, 2)
    strict, loose = query(), query(failOnDataLoss="false")
    for each in (strict, loose):
        each.at = await each.decisions.initial(each.follower)
    assert strict.at is not None and loose.at is not None
    end = await strict.decisions.latest(strict.follower, strict.at, TriggerLimits())
    await bk.delete_ledger(gone)
    with pytest.raises(NoSuchLedger, match="rows may be lost"):
        await strict.partitions(strict.at, end)
    planned = await loose.partitions(loose.at, end)
    assert [row[2] for row in await rows_of(planned, loose.options)] == payloads(2)
    assert not any(partition.fail_on_data_loss for partition in planned), "so it is for what is lost later"


async def test_a_checkpoint_beyond_the_end_of_a_ledger_is_a_loss(bk: BookKeeper, query: Follow) -> None:
    done = await closed(bk, 0, 1)
    strict, loose = query(), query(failOnDataLoss="false")
    strict.at = loose.at = LedgerPositions({done: 9})
    with pytest.raises(NoSuchEntry, match="the ledger does not reach to this entry: rows may be lost"):
        await strict.trigger()
    assert await loose.until_idle() == []


async def test_a_named_ledger_that_nobody_has_is_an_error_and_one_of_a_range_is_not(
    bk: BookKeeper, query: Follow
) -> None:
    await closed(bk, 0)
    with pytest.raises(NoSuchLedger):
        await query(ledgers="5").trigger()
    assert await query(ledgers="5-7").until_idle() == []


async def test_a_wrong_password_is_an_error(bk: BookKeeper, query: Follow) -> None:
    await written(bk, 0, digest="hmac", password=b"secret")
    with pytest.raises(Unauthorized, match="the options passwordFile and passwords give them"):
        await query(password="other").trigger()
    assert await query(password="secret").until_read(1) == payloads(0)


async def test_bookies_that_are_away_for_a_while_end_no_query(
    cluster: SmallCluster, bk: BookKeeper, query: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await written(bk, 0)
    following = query()
    assert await following.until_read(1) == payloads(0)
    await cluster.down("b0", "b1", "b2")
    empty = LedgerMetadata(3, 2, 2, (Fragment(0, ("b0", "b1", "b2")),)).closed(-1, 0)
    other = (await cluster.driver.create_ledger(empty)).value
    assert await following.trigger() and not await following.trigger()  # the new one is empty
    assert following.at is not None and following.at.has_read(other)
    monkeypatch.setattr(follow, "PATIENCE_S", -1.0)
    with pytest.raises(Unavailable):
        await following.trigger()
    monkeypatch.undo()
    await cluster.up("b0", "b1", "b2")
    assert not await following.trigger()
    assert writer.id in following.at.next


async def test_patience_begins_anew_with_each_time_that_an_end_is_known(
    cluster: SmallCluster, bk: BookKeeper, query: Follow
) -> None:
    await written(bk, 0)
    following = query()
    await following.until_read(1)
    (followed,), clock = following.follower._open.values(), following.follower.bk.context.clock
    followed.seen_at = clock.now() - 61.0
    assert not await following.trigger()
    await cluster.down("b0", "b1", "b2")
    assert not await following.trigger(), "it was known just now"
    followed.seen_at = clock.now() - 61.0
    with pytest.raises(Unavailable):
        await following.trigger()
    with pytest.raises(Unavailable):
        await query().trigger()  # where it begins nobody can guess


async def test_a_trigger_costs_what_is_new(
    cluster: SmallCluster, bk: BookKeeper, query: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await closed(bk, number)
    following = query()
    assert await following.until_idle() == payloads(*range(20))
    following.restart()
    looked_up: list[str] = []
    get_many = MemoryStore.get_many

    async def counted(store: MemoryStore, paths: Any) -> Any:
        looked_up.extend(path for path in paths if "/L" in path and "LAYOUT" not in path)
        return await get_many(store, paths)

    monkeypatch.setattr(MemoryStore, "get_many", counted)
    asked = sum(len(bookie.requests) + len(bookie.requests_v3) for bookie in cluster.bookies.values())
    assert not await following.trigger() and looked_up == []
    await closed(bk, 20)
    looked_up.clear()
    assert await following.until_idle() == payloads(*range(21))
    assert len(looked_up) <= 3
    assert sum(len(bookie.requests) + len(bookie.requests_v3) for bookie in cluster.bookies.values()) - asked < 20


async def test_of_many_open_ledgers_a_trigger_asks_some_in_turn(
    cluster: SmallCluster, bk: BookKeeper, query: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "FEW", 3)
    monkeypatch.setattr(rounds, "ROUND_S", 1e9)
    writers = [await written(bk, number) for number in range(12)]
    await asyncio.sleep(0.3)  # the idle writers tell their LACs
    following = query()
    assert sorted(await following.until_idle()) == payloads(*range(12))
    asked = sum(len(bookie.requests_v3) for bookie in cluster.bookies.values())
    assert not await following.trigger()
    assert sum(len(bookie.requests_v3) for bookie in cluster.bookies.values()) - asked <= 3 * len(cluster.bookies)
    await writers[7].append(b"new")
    await writers[7].close()
    await append(writers[9], 99)
    await asyncio.sleep(0.3)
    for _ in range(4):
        await following.trigger()
    assert sorted(payload for _, _, payload in following.rows[12:]) == [b"099", b"new"]


async def test_the_lag_is_what_a_batch_leaves(bk: BookKeeper, query: Follow) -> None:
    await closed(bk, *range(5))
    writer = await written(bk, 5, 6)
    await writer.close()
    following = query(maxOffsetsPerTrigger="4")
    assert await following.trigger() and len(following.rows) == 3
    assert await following.decisions.lag(following.follower) == Lag(4, 12, None)
    await following.until_idle()
    assert await following.decisions.lag(following.follower) == Lag(0, 0, 0.0)
    waiting = query(minOffsetsPerTrigger="9")
    assert not await waiting.trigger()
    assert await waiting.decisions.lag(waiting.follower) == Lag(7, 21, None)


async def test_a_planner_that_starts_while_bookies_are_away_takes_no_ledger_for_deleted(
    cluster: SmallCluster, bk: BookKeeper, query: Follow
) -> None:
    writer = await written(bk, 0, 1)
    following = query()
    assert await following.until_read(2) == payloads(0, 1)
    await cluster.down("b0", "b1", "b2")
    following.restart()
    assert not await following.trigger()
    assert following.at == LedgerPositions({writer.id: 2})
    await cluster.up("b0", "b1", "b2")
    await append(writer, 2)
    assert await following.until_read(3) == payloads(0, 1, 2)
