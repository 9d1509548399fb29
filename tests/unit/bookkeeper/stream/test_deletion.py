"""A stream that is deleted: nothing is left, and whoever writes it hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, RAW, REFUSE, StoreFaults, ledgers, notes, of_list, once, read_list
from tallystick.bookkeeper.metadata.store import Change, Create, Delete, Update
from tallystick.bookkeeper.stream import dedup, deletion
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import (
    NO_LEDGER,
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)
from tallystick.errors import BookieUnavailable, MetadataError, NoSuchStream, StreamFenced, StreamOwned


async def made(cluster: SmallCluster, count: int = 5) -> int:
    """Make a stream of some ledgers, with a cursor in its node and one in a ledger, which is returned."""
    bk = cluster.client(30)
    settings = StreamSettings(entry_format="raw", max_entries_per_ledger=1)
    async with bk.open_stream(NAME, settings=settings) as stream:
        for n in range(count):
            await stream.append(b"%d" % n)
    async with bk.create_ledger() as writer:
        pass
    catalog = bk.stream_context.catalog
    await catalog.write_cursor(NAME, "a", CursorInfo(NO_LEDGER, CursorState(Position(0, 0))), MISSING)
    await catalog.write_cursor(NAME, "b", CursorInfo(writer.id, None), MISSING)
    return writer.id


async def assert_gone(cluster: SmallCluster) -> None:
    with pytest.raises(NoSuchStream):
        await read_list(cluster)
    assert await ledgers(cluster) == [] and await notes(cluster) == []
    assert await cluster.store.children("/tallystick/owners") == []
    assert await cluster.store.children("/tallystick/going") == []


async def test_a_list_leaves_in_parts_that_the_metadata_takes(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a note of each ledger a change of a long list is more than ZooKeeper takes at once."""
    await made(cluster)
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    monkeypatch.setattr(deletion, "MOST_DROPPED", 2)
    await bk.delete_stream(NAME)
    assert max(sum(isinstance(each, Create) for each in changes) for changes in faults.changes) == 2
    await assert_gone(cluster)


async def test_nothing_is_left(cluster: SmallCluster) -> None:
    await made(cluster)
    bk = cluster.client()
    await bk.delete_stream(NAME)
    await assert_gone(cluster)
    with pytest.raises(NoSuchStream):
        await bk.delete_stream(NAME)
    async with bk.open_stream(NAME, settings=RAW) as stream:
        assert stream.last_confirmed == Position(-1, -1)


async def test_an_owner_keeps_its_stream_unless_it_is_taken_over(cluster: SmallCluster) -> None:
    owner = await cluster.client().open_stream(NAME, settings=RAW)
    await owner.append(b"x")
    other = cluster.client(2)
    with pytest.raises(StreamOwned):
        await other.delete_stream(NAME)
    await owner.append(b"y")
    await other.delete_stream(NAME, takeover=True)
    await assert_gone(cluster)
    with pytest.raises(StreamFenced):
        await owner.append(b"z")
    await owner.close()


async def test_a_topic_that_a_broker_may_write_is_not_deleted(cluster: SmallCluster) -> None:
    broker = cluster.client(3)
    writer = await broker.create_ledger()
    catalog = broker.stream_context.catalog
    stored = await catalog.create(NAME)
    await catalog.write(NAME, StreamInfo((StreamLedger(writer.id, has_counts=False),)), stored.version)
    with pytest.raises(StreamOwned, match="broker"):
        await cluster.client(5).delete_stream(NAME)
    assert await writer.append(b"y") == 0
    await cluster.client(6).delete_stream(NAME, takeover=True)
    await assert_gone(cluster)


@pytest.mark.parametrize("fault", [REFUSE, LOSE])
async def test_a_deletion_that_ends_anywhere_is_ended_by_the_next(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    for at in range(50):
        of_cursor = await made(cluster)
        bk = cluster.client(100 + at)
        with monkeypatch.context() as patch:
            faults, left = StoreFaults(bk, patch), [at]

            def script(changes: object, left: list[int] = left) -> str | None:
                left[0] -= 1
                return fault if left[0] == -1 else None

            faults.script = script
            try:
                await bk.delete_stream(NAME)
                is_whole = True
            except MetadataError:
                is_whole = False
        if not is_whole:
            with_note = await notes(cluster)
            try:
                info = await read_list(cluster)
                assert set(await ledgers(cluster)) <= {*with_note, *(each.ledger for each in info.ledgers), of_cursor}
                await bk.delete_stream(NAME)
            except NoSuchStream:
                pass
        await bk.close()
        await forget(cluster)
        if is_whole and left[0] >= 0:
            return
    raise AssertionError("there are fewer changes than that")


async def forget(cluster: SmallCluster) -> None:
    assert await ledgers(cluster) == [] and await notes(cluster) == []
    with pytest.raises(NoSuchStream):
        await read_list(cluster)


async def test_an_owner_goes_on_with_a_deletion_that_ended_in_between(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(cluster)
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    faults.script = once(REFUSE, lambda changes: isinstance(changes[0], Delete) and changes[0].path.endswith("/a"))
    with pytest.raises(MetadataError):
        await bk.delete_stream(NAME)
    assert len(await notes(cluster)) == 6
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await bk.stream_context.deletions.done()
        assert stream.last_confirmed == Position(-1, -1)
        assert await notes(cluster) == []


async def test_an_owner_without_work_hears_of_it_at_its_next_roll_over(cluster: SmallCluster) -> None:
    owner = await cluster.client().open_stream(NAME, settings=RAW)
    await owner.append(b"x")
    await cluster.client(2).delete_stream(NAME, takeover=True)
    with pytest.raises(StreamFenced):
        await owner.roll_over()
    await owner.close()
    await assert_gone(cluster)


async def test_an_owner_that_reads_its_numbers_meanwhile_hears_of_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry says any more that the one that failed was stored before: it was told to repeat that."""
    died = await cluster.client(2).open_stream(NAME)
    await died.append(b"0", producer="p", sequence=0)
    died.abort()
    owner = await cluster.client().open_stream(NAME, takeover=True)

    async def unread(*arguments: object) -> None:
        raise BookieUnavailable("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(dedup, "read_numbers", unread)
        with pytest.raises(BookieUnavailable):
            await owner.append(b"0", producer="p", sequence=0)
    bk = cluster.client(3)
    faults = StoreFaults(bk, monkeypatch)
    faults.script = once(REFUSE, lambda changes: isinstance(changes[0], Delete))
    with pytest.raises(MetadataError):
        await bk.delete_stream(NAME, takeover=True)
    assert (await read_list(cluster)).ledgers == ()
    with pytest.raises(StreamFenced) as fenced:
        await owner.append(b"1", producer="p", sequence=1)
    assert not fenced.value.ambiguous
    await owner.close()


async def test_nothing_is_acknowledged_that_the_list_does_not_have_any_more(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await cluster.client().open_stream(NAME, settings=StreamSettings(entry_format="raw", write_quorum=3))
    await owner.append(b"x")
    deleting = cluster.client(2)
    faults, fenced = StoreFaults(deleting, monkeypatch), list[int]()

    def script(changes: Sequence[Change]) -> None:
        if of_list(changes):
            fenced.append(sum(0 in bookie.fenced for bookie in cluster.bookies.values()))

    faults.script = script
    await deleting.delete_stream(NAME, takeover=True)
    assert fenced[0] == 3
    await owner.close()


async def test_it_deletes_no_ledger_that_an_owner_has_made_and_lists_then(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner took over while the stream was deleted: its appends would be acknowledged, and lost."""
    await made(cluster, 2)
    deleting, owning = cluster.client(1), cluster.client(2)
    emptied, goes_on, made_one, lists = (asyncio.Event() for _ in range(4))
    change, read = owning.context.driver.store.change, deleting.stream_context.catalog.cursors

    async def wait_and_list(*changes: Change) -> None:
        if of_list(changes) and isinstance(changes[0], Update):
            made_one.set()
            await lists.wait()
        await change(*changes)

    async def wait_and_read(stream: str) -> list[str]:
        emptied.set()
        await goes_on.wait()
        return await read(stream)

    monkeypatch.setattr(owning.context.driver.store, "change", wait_and_list)
    monkeypatch.setattr(deleting.stream_context.catalog, "cursors", wait_and_read)
    deletion = asyncio.ensure_future(deleting.delete_stream(NAME))
    await emptied.wait()
    opening = asyncio.ensure_future(opened(owning))
    await made_one.wait()
    gone = deleting.stream_context.catalog.gone

    async def list_and_forget(*arguments: Any) -> None:
        lists.set()  # the ledger is deleted, its note is there
        await asyncio.wait([opening])
        await gone(*arguments)

    monkeypatch.setattr(deleting.stream_context.catalog, "gone", list_and_forget)
    goes_on.set()
    with pytest.raises(StreamFenced):
        await opening
    await deletion
    await owning.stream_context.deletions.done()
    await assert_gone(cluster)


async def opened(bk: BookKeeper) -> Stream:
    return await bk.open_stream(NAME, settings=RAW, takeover=True)


@pytest.mark.parametrize("next_one", ["deletion", "owner"])
async def test_what_is_made_just_before_the_stream_goes_is_deleted_by_the_next(
    cluster: SmallCluster, next_one: str
) -> None:
    """Its maker died before it could list it, or delete it."""
    bk = cluster.client()
    await bk.stream_context.catalog.create(NAME)
    catalog = bk.stream_context.catalog
    await catalog.delete(NAME, 0)
    await bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])
    assert await notes(cluster) == [0]
    if next_one == "owner":
        async with bk.open_stream(NAME, settings=RAW) as stream:
            await stream.append(b"x")
            await bk.stream_context.deletions.done()
            assert await ledgers(cluster) == [stream.last_confirmed.ledger]
    await bk.delete_stream(NAME)
    await assert_gone(cluster)


async def test_a_ledger_that_is_condemned_is_never_listed_also_by_a_list_of_the_same_version(
    cluster: SmallCluster,
) -> None:
    """A stream that is made again has the versions of the one that was deleted."""
    bk = cluster.client()
    catalog = bk.stream_context.catalog
    stored = await catalog.create(NAME)
    writer = await bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])
    await catalog.delete(NAME, stored.version)
    await catalog.create(NAME)
    assert await catalog.condemn(NAME, writer.id)
    info = StreamInfo((StreamLedger(writer.id, has_counts=False),))
    with pytest.raises(StreamFenced):
        await catalog.write(NAME, info, stored.version, settled=[writer.id])
    await bk.stream_context.deletions.delete(NAME, [writer.id])
    assert await ledgers(cluster) == [] and await notes(cluster) == []
    assert not await catalog.condemn(NAME, writer.id)
