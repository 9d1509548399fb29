"""What a streaming query reads, batch by batch, while its streams roll over, are trimmed, deleted and made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from support.following_queries import entries, values
from support.listed_streams import NAME, ListedStream
from support.small_cluster import SmallCluster
from support.stream_partitions import rows_of, wanted
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.stream.ledger_list import StreamList
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position
from tallystick.errors import (
    EntryLost,
    NoSuchEntry,
    NoSuchPosition,
    NoSuchStream,
    PositionTrimmed,
    UsageError,
)
from tallystick.pipeline import listing
from tallystick.pipeline.stream.spans import BEFORE_LEDGERS
from tallystick.pipeline.trigger import TriggerLimits


async def test_rows_come_once_over_ledgers_and_planners(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1), entries(2))
    await owner.append(*entries(3, 4))
    await owner.tell_lac()
    following = query()
    assert await following.until_idle() == values(0, 1, 2, 3, 4)
    following.restart()
    assert not await following.trigger()
    await owner.append(*entries(5))
    await owner.roll()
    await owner.append(*entries(6))
    await owner.tell_lac()
    assert await following.until_idle() == values(*range(7))


async def test_a_query_begins_where_its_options_say(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1), entries(2, 3))
    ledger = owner.info.ledgers[1].ledger
    assert await query(startingOffsets="latest").until_idle() == []
    assert await query(startingTimestamp="1000900").until_idle() == values(1, 2, 3)
    assert await query(startingOffsets=f'{{"{NAME}": "{ledger}:1"}}').until_idle() == values(3)
    with pytest.raises(NoSuchPosition, match="startingOffsets: the stream does not reach"):
        await query(startingOffsets=f'{{"{NAME}": "{ledger}:7"}}').trigger()


async def test_a_batch_is_the_same_when_it_is_planned_again(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(*range(5)), entries(*range(5, 9)))
    await owner.append(*entries(9, 10, 11))
    await owner.tell_lac()
    following = query(maxBytesPerPartition="250")
    start = await following.decisions.initial(following.follower)
    end = await following.decisions.latest(following.follower, start, TriggerLimits())
    planned = await following.partitions(start, end)
    assert len(planned) > 3
    await owner.append(*entries(12), b"x" * 100_000)
    await owner.roll()
    await owner.append(*entries(13))
    following.restart()
    assert [each.ranges for each in await following.partitions(start, end)] == [each.ranges for each in planned]
    assert [row["value"] for row in await rows_of(planned)] == values(*range(12))


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_a_batch_whose_last_entry_is_lost_has_the_others(
    cluster: SmallCluster, owner: ListedStream, query: Any, *, is_given_up: bool
) -> None:
    """Its bytes are told by its ends, and nobody has this one: an operator gave it up, or no replica has it."""
    await owner.create(entries(*range(6)))
    ledger = owner.info.ledgers[0].ledger
    if is_given_up:
        stored = await cluster.driver.read_ledger(ledger)
        await cluster.driver.write_ledger(ledger, with_lost(stored.value, [(2, 2)]), stored.version)
    else:
        for bookie in cluster.bookies.values():
            bookie.keep_only({place: body for place, body in bookie.entries.items() if place != (ledger, 2)})
    with pytest.raises(EntryLost if is_given_up else NoSuchEntry):
        await query(maxOffsetsPerTrigger="3").until_idle()
    rows = await query(maxOffsetsPerTrigger="3", failOnDataLoss="false").until_idle()
    assert rows == values(0, 1, 3, 4, 5)


async def test_a_batch_that_ends_in_a_ledger_that_is_not_seen_yet_is_planned_as_a_whole(
    owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another planner of the query knew of it, and nobody tells this one of the change."""
    monkeypatch.setattr(StreamList, "_read_later", lambda stream_list: None)
    await owner.create(entries(0, 1))
    late, other = query(), query()
    start = await late.decisions.initial(late.follower)
    await owner.append(*entries(2))
    await owner.roll()
    await owner.append(*entries(3))
    await owner.tell_lac()
    other.restart()
    end = await other.decisions.latest(other.follower, start, TriggerLimits())
    assert end[NAME].ledger == owner.info.ledgers[-1].ledger
    assert [row["value"] for row in await rows_of(await late.partitions(start, end))] == values(0, 1, 2, 3)


async def test_a_trigger_costs_what_is_new(
    cluster: SmallCluster, owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what there is: neither the metadata of 20 ledgers nor their bookies are asked again."""
    await owner.create(*(entries(number) for number in range(20)))
    following = query()
    assert await following.until_idle() == values(*range(20))
    looked_up: list[str] = []
    get, get_many = MemoryStore.get, MemoryStore.get_many

    async def counted(store: MemoryStore, path: str) -> Any:
        looked_up.append(path)
        return await get(store, path)

    async def counted_many(store: MemoryStore, paths: Sequence[str]) -> Any:
        looked_up.extend(paths)
        return await get_many(store, paths)

    monkeypatch.setattr(MemoryStore, "get", counted)
    monkeypatch.setattr(MemoryStore, "get_many", counted_many)

    def asked() -> int:
        return sum(len(bookie.requests) + len(bookie.requests_v3) for bookie in cluster.bookies.values())

    before = asked()
    assert not await following.trigger()
    assert asked() - before <= len(cluster.bookies) and looked_up == []
    await owner.append(*entries(20, 21))
    await owner.tell_lac()
    before, looked_up[:] = asked(), []
    assert await following.until_idle() == values(*range(22))
    assert asked() - before <= 12
    assert len([path for path in looked_up if "/L" in path]) <= 1 + BEFORE_LEDGERS


async def test_limits_are_kept_batch_by_batch(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(*range(5)), entries(*range(5, 9)))
    following = query(maxOffsetsPerTrigger="2")
    sizes = []
    while await following.trigger():
        sizes.append(len(following.rows))
    assert following.rows == values(*range(9)) and sizes == [2, 4, 6, 8, 9]
    by_bytes = query(maxBytesPerTrigger=str(3 * len(entries(0)[0])))
    assert await by_bytes.trigger() and by_bytes.rows == values(0, 1, 2)
    assert await by_bytes.trigger(TriggerLimits()) and by_bytes.rows == values(*range(9))


async def test_the_bytes_of_an_open_ledger_count(owner: ListedStream, query: Any) -> None:
    await owner.create()
    await owner.append(*entries(*range(5)))
    await owner.tell_lac()
    following = query(maxBytesPerTrigger=str(2 * len(entries(0)[0])))
    assert await following.trigger() and following.rows == values(0, 1)
    assert await following.until_idle() == values(*range(5))


async def test_what_is_trimmed_behind_the_query_is_no_loss(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1), entries(2))
    following = query()
    await following.until_idle()
    await owner.append(*entries(3))
    await owner.roll()
    await owner.trim(3)
    await owner.append(*entries(4))
    await owner.tell_lac()
    with pytest.raises(PositionTrimmed, match="rows may be lost; failOnDataLoss=false goes on with what is left"):
        await following.trigger()  # it had not read 3
    lenient = query(failOnDataLoss="false")
    lenient.at, lenient.rows = following.at, following.rows
    assert await lenient.until_idle() == values(0, 1, 2, 4)


async def test_a_ledger_that_was_read_to_its_end_and_trimmed_before_the_next_trigger(
    owner: ListedStream, query: Any
) -> None:
    await owner.create()
    await owner.append(*entries(0, 1))
    await owner.tell_lac()
    following = query()
    assert await following.until_idle() == values(0, 1)
    await owner.roll()
    await following.follower.extents({NAME: EARLIEST}, is_patient=False)  # the list is seen, no trigger comes
    await owner.trim(1)
    await owner.append(*entries(2))
    await owner.tell_lac()
    assert await following.until_idle() == values(0, 1, 2)


async def test_streams_of_a_pattern_come_in_the_middle_of_a_query(
    owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    following = query(subscribePattern="tenant/ns/.*", startingOffsets="latest")
    assert not await following.trigger() and following.at == {}
    await owner.create(entries(0))
    assert await following.until_idle() == values(0)
    other = await ListedStream(owner.client, "tenant/ns/persistent/another").create(entries(1), entries(2))
    assert await following.until_idle() == values(0, 1, 2)
    await owner.delete()
    with pytest.raises(NoSuchStream, match="a stream that the query reads is deleted: rows may be lost"):
        await following.trigger()
    lenient = query(subscribePattern="tenant/ns/.*", failOnDataLoss="false")
    lenient.at = following.at
    assert await lenient.until_idle() == [] and set(lenient.at) == {other.name}


async def test_a_query_that_runs_for_long_remembers_no_stream_that_is_deleted(
    owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    following = query(subscribePattern="tenant/ns/.*", failOnDataLoss="false")
    for number in range(5):
        one = await ListedStream(owner.client, f"tenant/ns/persistent/of-{number}").create(entries(number))
        assert await following.until_idle() == values(*range(number + 1))
        await one.delete()
    await following.until_idle()
    assert following.at == {} and not following.decisions._quiet


async def test_a_stream_that_was_deleted_and_made_again(
    owner: ListedStream, query: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    await owner.create(entries(0, 1))
    following, strict = query(failOnDataLoss="false"), query()
    assert await following.until_idle() == await strict.until_idle() == values(0, 1)
    await owner.delete()
    with pytest.raises(NoSuchStream, match="a stream that the query reads is deleted: rows may be lost"):
        await strict.trigger()
    for _ in range(3):
        await following.until_idle()  # there is none of the name
    assert f"stream={NAME}" in (note := capsys.readouterr().err) and "goes on with what is left" in note
    await ListedStream(owner.client).create(entries(2))
    assert await following.until_idle() == values(0, 1, 2)


async def test_a_stream_that_was_deleted_before_a_run_with_available_now(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0))
    loose, strict, new = query(failOnDataLoss="false"), query(), query(failOnDataLoss="false")
    assert await loose.until_idle() == await strict.until_idle() == values(0)
    await owner.delete()
    for each in (loose, strict, new):
        each.restart()
        await each.decisions.freeze(each.follower)
    assert await loose.until_idle() == values(0)
    with pytest.raises(NoSuchStream, match="a stream that the query reads is deleted: rows may be lost; failOnDataL"):
        await strict.trigger()
    with pytest.raises(NoSuchStream, match="There is no stream of this name"):
        await new.trigger()


async def test_a_stream_that_was_made_again_before_anybody_saw_it(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1))
    following, strict = query(failOnDataLoss="false"), query()
    assert await following.until_idle() == await strict.until_idle() == values(0, 1)
    await owner.delete()
    await ListedStream(owner.client).create(entries(2))
    with pytest.raises(NoSuchStream, match="rows may be lost"):
        await strict.trigger()
    assert await following.until_idle() == values(0, 1, 2)


async def test_a_stream_that_is_named_must_be_there_and_another_one_may_be_added(
    owner: ListedStream, query: Any
) -> None:
    with pytest.raises(NoSuchStream):
        await query().trigger()
    await owner.create(entries(0))
    following = query()
    await following.until_idle()
    other = await ListedStream(owner.client, "tenant/ns/persistent/another").create(entries(1))
    more = query(subscribe=f"{NAME},{other.name}")
    more.at = following.at
    assert await more.until_idle() == values(1)
    less = query(subscribe=other.name)
    less.at = more.at
    assert not (await less.until_idle()) and set(less.at) == {other.name}


async def test_available_now_ends_where_the_streams_were(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1), entries(2))
    following = query(maxOffsetsPerTrigger="2")
    await following.decisions.freeze(following.follower)
    assert await following.trigger()
    await owner.append(*entries(3))
    await owner.roll()
    await ListedStream(owner.client, "tenant/ns/persistent/another").create(entries(9))
    assert await following.until_idle() == values(0, 1, 2)
    following.restart()
    await following.decisions.freeze(following.follower)
    assert await following.until_idle() == values(0, 1, 2, 3)


async def test_a_stream_that_ends_is_read_to_its_end_and_the_query_idles(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1))
    await owner.append(*entries(2))
    following = query(maxOffsetsPerTrigger="1")
    assert await following.trigger()
    await owner.append(*entries(3))
    await owner.terminate()
    assert await following.until_idle() == values(0, 1, 2, 3)
    assert not await following.trigger()
    late = query()
    await late.decisions.freeze(late.follower)  # AvailableNow
    assert await late.until_idle() == values(0, 1, 2, 3)
    late.restart()
    await late.decisions.freeze(late.follower)
    assert not await late.trigger()


async def test_available_now_from_the_end(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0))
    following = query(startingOffsets="latest")
    await following.decisions.freeze(following.follower)
    await owner.append(*entries(1))
    await owner.roll()
    assert await following.until_idle() == []


async def test_an_end_that_others_knew_is_not_taken_back(
    cluster: SmallCluster, owner: ListedStream, query: Any
) -> None:
    await owner.create()
    [*_, last] = await owner.append(*entries(0, 1, 2))
    following = query()
    following.at = {NAME: Position(last.ledger, last.entry + 1)}  # the bookies say less: its last entry's LAC is older
    assert not await following.trigger()
    following.restart()
    await following.decisions.freeze(following.follower)  # who looks how far all is, whatever the query knows
    assert await following.decisions.latest(following.follower, following.at, TriggerLimits()) == following.at


async def test_a_query_that_runs_for_long_has_one_ledger_of_a_stream_open(owner: ListedStream, query: Any) -> None:
    await owner.create()
    following = query()
    for number in range(5):
        await owner.append(*entries(number))
        await owner.tell_lac()
        assert await following.until_idle() == values(*range(number + 1))
        await owner.roll()
    assert len(following.follower._followed[NAME].walk._open_readers) == 1


async def test_a_checkpoint_that_is_beyond_the_end_of_its_stream(owner: ListedStream, query: Any) -> None:
    """As that of a stream whose newest entries were lost: those that take their places would not be read."""
    await owner.create(entries(0, 1), entries(2))
    following, lenient = query(), query(failOnDataLoss="false")
    following.at = lenient.at = {NAME: Position(owner.info.ledgers[0].ledger, 7)}
    with pytest.raises(NoSuchPosition, match="rows may be lost"):
        await following.trigger()
    await lenient.until_idle()
    await owner.append(*entries(3))
    await owner.roll()
    assert await lenient.until_idle() == values(3)


async def test_a_stream_that_is_deleted_before_its_batch_is_planned(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1))
    strict, lenient = query(), query(failOnDataLoss="false")
    start = await strict.decisions.initial(strict.follower)
    end = await strict.decisions.latest(strict.follower, start, TriggerLimits())
    await owner.delete()
    for each in (strict, lenient):
        assert await each.follower.extents({NAME: EARLIEST}, is_patient=False) == {}, "it is known by now"
    with pytest.raises(NoSuchStream, match="rows may be lost"):
        await strict.partitions(start, end)
    assert await lenient.partitions(start, end) == []


async def test_a_ledger_whose_end_the_list_does_not_say(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0))
    await owner.append(*entries(1, 2))
    await owner.close_ledger()
    following = query(maxOffsetsPerTrigger="2")
    assert await following.until_idle() == values(0, 1, 2)


async def test_offsets_of_streams_that_begin_nowhere(owner: ListedStream, query: Any) -> None:
    await owner.catalog.create(NAME)
    following = query()
    assert not await following.trigger() and following.at == {NAME: EARLIEST}
    await owner.roll()
    await owner.append(*entries(0))
    await owner.roll()
    assert await following.until_idle() == values(0)


def test_what_is_of_the_other_kind_of_query_is_refused() -> None:
    for option in ("endingOffsets", "endingTimestamp"):
        with pytest.raises(UsageError, match=f"{option} is an option of spark.read$"):
            wanted(follows=True, **{option: "1"})
    for option in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(UsageError, match=f"{option} is an option of spark.readStream"):
            wanted(follows=False, **{option: "1"})


async def test_a_batch_waits_for_enough_entries_or_for_long_enough(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1))
    following = query(minOffsetsPerTrigger="3", maxTriggerDelay="1s")
    assert not await following.trigger()
    await owner.append(*entries(2))
    await owner.roll()
    assert await following.trigger() and following.rows == values(0, 1, 2)
    await owner.append(*entries(3))
    await owner.tell_lac()
    assert not await following.trigger()
    await asyncio.sleep(1.0)
    assert await following.trigger() and following.rows == values(0, 1, 2, 3)
    await owner.append(*entries(4))
    await owner.tell_lac()
    assert not await following.trigger(), "the time begins anew with each batch"
    following.restart()
    await owner.append(*entries(5))
    await owner.roll()
    assert not await following.trigger()
    await following.decisions.freeze(following.follower)
    assert await following.until_idle() == values(0, 1, 2, 3, 4, 5)


async def test_a_first_batch_that_is_planned_again_when_there_is_more_has_nothing(
    owner: ListedStream, query: Any
) -> None:
    await owner.create(entries(0, 1))
    following = query(startingOffsets="latest")
    end = await following.decisions.initial(following.follower)
    await owner.append(*entries(2, 3))
    await owner.tell_lac()
    following.restart()
    later = await following.decisions.initial(following.follower)
    assert later[NAME] > end[NAME] and await following.partitions(later, end) == []
