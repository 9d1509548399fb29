"""The list of a stream as readers and cursors share it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from support.listed_streams import NAME, ListedStream, catalog_of
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.bookkeeper.stream import ledger_list
from tallystick.bookkeeper.stream.ledger_list import StreamList, StreamLists, trimmed_end
from tallystick.bookkeeper.wire.stream_values import EARLIEST, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import MAX_ID
from tallystick.errors import MetadataError, MetadataUnavailable, NoSuchStream, UsageError


def closed(ledger: int, entries: int) -> StreamLedger:
    return StreamLedger(ledger, entries, 10 * entries, 1_000)


def opened(ledger: int) -> StreamLedger:
    return StreamLedger(ledger, has_counts=False)


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return await ListedStream(cluster.client()).create()


@pytest.fixture
async def lists(cluster: SmallCluster, owner: ListedStream) -> AsyncIterator[StreamLists]:
    client = cluster.client(2)
    made = StreamLists(catalog_of(client), client.context.bookies.wakes)
    yield made
    made.close()


class CountedStore:
    """Counts what is asked of a store, and lets a test fail it."""

    def __init__(self, lists: StreamLists, monkeypatch: pytest.MonkeyPatch) -> None:
        store = lists.catalog.store
        self.reads, self.failure = 0, None
        self._get = store.get
        monkeypatch.setattr(store, "get", self.get)

    reads: int
    failure: Exception | None

    async def get(self, path: str) -> Any:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return await self._get(path)


async def until_read(shared: StreamList, *ledgers: StreamLedger) -> None:
    while shared.info.ledgers != ledgers:
        seen = shared.changes
        await shared.wait(seen)


async def test_one_list_and_one_watch_however_many_use_it(lists: StreamLists, owner: ListedStream) -> None:
    opened_lists = await asyncio.gather(*(lists.open(NAME) for _ in range(100)))
    assert len(set(map(id, opened_lists))) == 1 and len({id(each.info) for each in opened_lists}) == 1
    assert opened_lists[0].users == 100


async def test_a_thousand_that_open_at_once_share_the_reads(
    lists: StreamLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CountedStore(lists, monkeypatch)
    await asyncio.gather(*(lists.open(NAME) for _ in range(1000)))
    assert store.reads <= 2


async def test_a_change_is_read_once_and_wakes_all(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, *_ = [await lists.open(NAME) for _ in range(10)]
    store = CountedStore(lists, monkeypatch)
    waiting = [asyncio.create_task(shared.wait(shared.changes)) for _ in range(10)]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting) and store.reads == 0
    ledger = await owner.roll()
    await asyncio.gather(*waiting)
    assert store.reads == 1 and shared.info.ledgers[-1].ledger == ledger == shared.at_or_after(ledger).ledger  # type: ignore[union-attr]


async def test_a_read_begins_after_it_was_asked_for(lists: StreamLists, owner: ListedStream) -> None:
    shared = await lists.open(NAME)
    for _ in range(20):
        first = asyncio.create_task(shared.sync())
        await asyncio.sleep(0)
        ledger = await owner.roll()
        assert (await shared.sync()).ledgers[-1].ledger == ledger
        await first


async def test_no_read_overtakes_another(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, store = await lists.open(NAME), lists.catalog.store
    get, goes = store.get, asyncio.Event()

    async def slow(path: str) -> Any:
        node = await get(path)
        await goes.wait()
        return node

    with monkeypatch.context() as patch:
        patch.setattr(store, "get", slow)
        first = asyncio.create_task(shared.sync())
        await asyncio.sleep(0.1)
    await owner.roll()
    second = asyncio.create_task(shared.sync())
    await asyncio.sleep(0.1)
    goes.set()
    assert len((await first).ledgers) == len((await second).ledgers) == 1
    assert shared.info.ledgers == owner.info.ledgers


async def test_a_look_that_finds_nothing_new_wakes_nobody(lists: StreamLists) -> None:
    shared = await lists.open(NAME)
    changes, info = shared.changes, shared.info
    assert await shared.sync() is info and shared.changes == changes


async def test_what_fails_for_nobody_is_not_tried_again(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, store = await lists.open(NAME), CountedStore(lists, monkeypatch)
    store.failure = MetadataUnavailable()
    await owner.roll()
    await asyncio.sleep(0)
    assert store.reads == 0, "it is under way"
    shared.release()
    await asyncio.sleep(10 * ledger_list.RETRY_S)
    assert store.reads == 1


async def test_a_list_that_nobody_uses_is_not_watched(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await lists.open(NAME), await lists.open(NAME)
    first.release()
    store = CountedStore(lists, monkeypatch)
    await owner.roll()
    await asyncio.sleep(0.1)
    assert store.reads == 1
    second.release()
    await owner.roll()
    await asyncio.sleep(0.1)
    assert store.reads == 1
    assert (await lists.open(NAME)) is not first


async def test_metadata_that_is_away_when_the_list_changes(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await lists.open(NAME)
    before, store = shared.info, CountedStore(lists, monkeypatch)
    store.failure = MetadataUnavailable()
    ledger = await owner.roll()
    await asyncio.sleep(10 * ledger_list.RETRY_S)
    assert shared.info is before and store.reads <= 11
    with pytest.raises(MetadataUnavailable):
        await shared.sync()
    store.failure = None
    await asyncio.sleep(2 * ledger_list.RETRY_S)
    assert shared.info.ledgers[-1].ledger == ledger
    reads = store.reads
    await asyncio.sleep(10 * ledger_list.RETRY_S)
    assert store.reads == reads


async def test_a_metadata_service_that_is_another_one(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await lists.open(NAME)
    waiting, store = asyncio.create_task(shared.wait(shared.changes)), CountedStore(lists, monkeypatch)
    store.failure = MetadataError("another file is there")
    await owner.roll()
    await waiting
    with pytest.raises(MetadataError, match="another file"):
        shared.info  # noqa: B018
    store.failure = None
    assert (await shared.sync()).ledgers == owner.info.ledgers


async def test_a_stream_that_is_deleted(lists: StreamLists, owner: ListedStream) -> None:
    with pytest.raises(NoSuchStream):
        await lists.open("tenant/ns/persistent/other")
    shared = await lists.open(NAME)
    waiting = asyncio.create_task(shared.wait(shared.changes))
    await owner.delete()
    await waiting
    for _ in range(2):
        with pytest.raises(NoSuchStream) as told:
            shared.info  # noqa: B018
        assert told.value.stream == NAME
        with pytest.raises(NoSuchStream):
            await shared.sync()
    with pytest.raises(NoSuchStream):
        await lists.open(NAME)


async def test_a_stream_that_is_made_again_is_another_one(lists: StreamLists, owner: ListedStream) -> None:
    shared = await lists.open(NAME)
    path = owner.catalog.paths.stream(NAME)
    await owner.catalog.store.change(Delete(path), Create(path))
    with pytest.raises(NoSuchStream):
        await shared.sync()
    another = await lists.open(NAME)
    assert another is not shared and another.info == StreamInfo()
    shared.release()
    assert await lists.open(NAME) is another


async def test_a_list_that_cannot_be_read_is_told_and_read_again(lists: StreamLists, owner: ListedStream) -> None:
    shared = await lists.open(NAME)
    seen, path = shared.changes, owner.catalog.paths.stream(NAME)
    await owner.catalog.store.change(Update(path, b"\xff of a newer version", owner.version))
    await shared.wait(seen)
    with pytest.raises(MetadataError, match=path):
        shared.info  # noqa: B018
    with pytest.raises(MetadataError):
        await lists.open(NAME)
    owner.version += 1
    await owner.write(replace(owner.info, properties={"a": "b"}))
    await asyncio.sleep(0.1)
    assert shared.info.properties == {"a": "b"}


async def test_metadata_that_fails_once_in_another_way_is_read_again(
    lists: StreamLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, store = await lists.open(NAME), CountedStore(lists, monkeypatch)
    store.failure = MetadataError("not allowed")
    with pytest.raises(MetadataError, match="not allowed"):
        await shared.sync()
    store.failure = None
    assert (await shared.sync()).ledgers == shared.info.ledgers


async def test_who_could_not_open_a_list_leaves_nothing_of_it(
    lists: StreamLists, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CountedStore(lists, monkeypatch)
    store.failure = MetadataUnavailable()
    with pytest.raises(MetadataUnavailable):
        await lists.open(NAME)
    await owner.roll()
    await asyncio.sleep(10 * ledger_list.RETRY_S)
    assert store.reads == 1 and not lists._lists, "nobody watches it"


async def test_a_client_that_is_closed(lists: StreamLists) -> None:
    shared = await lists.open(NAME)
    waiting = asyncio.create_task(shared.wait(shared.changes))
    lists.close()
    await waiting
    for call in (shared.sync(), lists.open(NAME)):
        with pytest.raises(UsageError, match="closed"):
            await call


async def test_ledgers_are_found_by_their_ids(lists: StreamLists, owner: ListedStream) -> None:
    shared = await lists.open(NAME)
    await owner.write(StreamInfo((closed(3, 1), closed(7, 1), opened(9))))
    await shared.sync()
    assert [getattr(shared.at_or_after(ledger), "ledger", None) for ledger in range(2, 11)] == [
        *(3, 3, 7, 7, 7, 7, 9, 9, None)
    ]
    assert [ledger for ledger in range(11) if shared.find(ledger)] == [3, 7, 9]


async def test_what_retention_cut_off_is_known_to_those_who_were_there(lists: StreamLists, owner: ListedStream) -> None:
    shared = await lists.open(NAME)
    for _ in range(3):
        await owner.append(b"a", b"b")
        await owner.roll()
    await shared.sync()
    assert shared.trimmed == EARLIEST
    last_gone = owner.info.ledgers[1].ledger
    await owner.trim(2)
    await shared.sync()
    await owner.roll()
    await shared.sync()
    assert shared.trimmed == Position(last_gone, 2)


BEFORE = (closed(3, 5), closed(7, 2), opened(9))


@pytest.mark.parametrize(
    ("before", "after", "writes", "expected"),
    [
        (BEFORE, BEFORE, 1, EARLIEST),
        (BEFORE, BEFORE, 9, EARLIEST),
        (BEFORE, BEFORE[1:], 1, Position(3, 5)),
        (BEFORE, BEFORE[2:], 1, Position(7, 2)),
        (BEFORE, (*BEFORE[:2], opened(11)), 1, EARLIEST),  # nothing was stored in the newest
        (BEFORE, (*BEFORE[:2], opened(11)), 2, EARLIEST),
        (BEFORE, (opened(11),), 1, Position(7, 2)),
        (BEFORE, (opened(11),), 2, Position(9, MAX_ID)),  # it was closed, another one listed, and all before trimmed
        (BEFORE, (opened(11),), 3, Position(11, 0)),  # there may have been another one between them
        (BEFORE, (closed(11, 1), opened(12)), 3, Position(9, MAX_ID)),
        (BEFORE, (closed(11, 1), opened(12)), 4, Position(11, 0)),
        (BEFORE, (closed(9, 4), opened(11)), 5, Position(7, 2)),
        (BEFORE, (), 1, Position(7, 2)),
        (BEFORE, (), 2, Position(9, MAX_ID)),
        ((), BEFORE, 3, EARLIEST),
        ((), BEFORE, 4, EARLIEST),
        ((), BEFORE, 5, Position(3, 0)),
        ((opened(3), opened(9)), (opened(9),), 1, Position(3, MAX_ID)),  # its end was never listed
        ((opened(3),), (opened(9),), 1, EARLIEST),
        ((closed(2, 0), opened(3)), (opened(9),), 1, EARLIEST),
        ((closed(2, 0), closed(3, 0)), (opened(9),), 2, EARLIEST),
        ((StreamLedger(2, 0, 0, 1_000, has_counts=False), opened(3)), (opened(3),), 1, Position(2, MAX_ID)),
    ],
)
def test_what_has_left_a_list(
    before: tuple[StreamLedger, ...], after: tuple[StreamLedger, ...], writes: int, expected: Position
) -> None:
    assert trimmed_end(before, after, writes) == expected
