"""A stream that is deleted: nothing is left, and whoever writes it hears of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, RAW, REFUSE, StoreFaults, ledgers, notes, of_list, once, read_list
from tallystick.bookkeeper.metadata.store import Change, Delete
from tallystick.bookkeeper.stream.catalog import MISSING
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import (
    NO_LEDGER,
    CursorInfo,
    CursorState,
    Position,
    StreamInfo,
    StreamLedger,
)
from tallystick.errors import MetadataError, NoSuchStream, StreamFenced, StreamOwned


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
    for at in range(30):
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
