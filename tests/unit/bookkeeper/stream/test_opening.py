"""How an owner opens a stream: whose it may be, what is recovered, what is left of attempts that died (Q19)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, RAW, REFUSE, StoreFaults, ledgers, notes, of_list, read_all, read_list
from tallystick.bookkeeper.metadata.store import Change, Update
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.marks import OWNER_KEY
from tallystick.bookkeeper.stream.names import LONGEST_PART
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.managed_ledgers import encode_stream
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.errors import (
    MetadataError,
    MetadataUnavailable,
    NoSuchLedger,
    NotEnoughBookies,
    PositionTrimmed,
    StreamFenced,
    StreamOwned,
    UsageError,
)

PATH = f"/managed-ledgers/{NAME}"


async def list_as_a_broker(cluster: SmallCluster, *listed: StreamLedger) -> None:
    bk = cluster.client(77)
    catalog = bk.stream_context.catalog
    made = await catalog.create(NAME)
    await catalog.write(NAME, replace(made.value, ledgers=listed), made.version)


@pytest.mark.rule("Q19")
async def test_q19_what_a_ledger_of_a_stream_says_of_itself(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        metadata = await cluster.client(2).ledger_metadata(0)
        assert dict(metadata.custom) == {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": NAME.encode(),
            OWNER_KEY: stream.owner.encode(),
        }
        assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 2)
        assert metadata.digest_type.name == "CRC32C" and metadata.password == b""
        assert (await read_list(cluster)).ledgers == (StreamLedger(0, has_counts=False),)


async def test_the_stored_list_has_the_ends_of_closed_ledgers(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"12345")
        await stream.append(b"678")
        await stream.roll_over()
    first, second = (await read_list(cluster)).ledgers
    assert (first.entries, first.size) == (2, 8) and abs(first.timestamp_ms - bk.context.clock.wall_ms()) < 1000
    assert (second.ledger, second.is_closed, second.has_counts) == (1, False, False)


async def test_a_newest_ledger_without_our_mark_may_be_a_live_brokers(cluster: SmallCluster) -> None:
    broker = cluster.client(5)
    writer = await broker.create_ledger()
    await writer.append(b"0")
    await list_as_a_broker(cluster, StreamLedger(writer.id, has_counts=False))
    with pytest.raises(StreamOwned, match="broker") as owned:
        await cluster.client().open_stream(NAME, settings=RAW)
    assert owned.value.owner is None
    assert await writer.append(b"1") == 1, "nothing was done to it"
    async with cluster.client().open_stream(NAME, settings=RAW, takeover=True) as stream:
        assert await stream.append(b"2") == Position(1, 0)
    assert await read_all(cluster) == [("0:0", b"0"), ("0:1", b"1"), ("1:0", b"2")]


async def test_any_ledger_that_may_be_open_may_be_a_live_brokers(cluster: SmallCluster) -> None:
    broker = cluster.client(5)
    async with broker.create_ledger() as ended:
        await ended.append(b"0")
    writer = await broker.create_ledger()
    await list_as_a_broker(cluster, *(StreamLedger(each.id, has_counts=False) for each in (ended, writer)))
    with pytest.raises(StreamOwned, match="broker"):
        await cluster.client().open_stream(NAME, settings=RAW)
    assert await writer.append(b"1") == 0, "nothing was done to it"


async def test_a_brokers_topic_whose_last_ledger_is_closed_is_nobodys(cluster: SmallCluster) -> None:
    broker = cluster.client(5)
    async with broker.create_ledger() as writer:
        await writer.append(b"0")
    await list_as_a_broker(cluster, StreamLedger(writer.id, has_counts=False))
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        assert stream.last_confirmed == Position(0, 0)


async def test_a_dead_owners_entries_are_found(cluster: SmallCluster) -> None:
    dead = cluster.client()
    stream = await dead.open_stream(NAME, settings=RAW)
    for n in range(5):
        await stream.append(b"%d" % n)
    await dead.close()  # without closing the stream, as if it died
    async with cluster.client(2).open_stream(NAME, settings=RAW) as again:
        assert again.last_confirmed == Position(0, 4)
    assert len(await read_all(cluster)) == 5


async def test_a_ledger_without_entries_leaves_the_list_and_is_deleted(cluster: SmallCluster) -> None:
    for n in range(4):
        async with cluster.client(n).open_stream(NAME, settings=RAW):
            pass
    bk = cluster.client(9)
    async with bk.open_stream(NAME, settings=RAW):
        await bk.stream_context.deletions.done()
        assert [each.ledger for each in (await read_list(cluster)).ledgers] == [4] == await ledgers(cluster)
    assert await notes(cluster) == []


async def test_a_position_in_a_ledger_that_was_dropped_as_empty_is_before_the_next_one(cluster: SmallCluster) -> None:
    """Who kept it, in a client that was not there, has missed nothing."""
    bk = cluster.client()
    for _ in range(2):
        await (await bk.open_stream(NAME, settings=RAW)).close()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
    async with cluster.client(2).read_stream(NAME, entry_format="raw") as reader:
        for ledger in (0, 1):
            assert [bytes(message.data) async for message in reader.read(start=Position(ledger, 0))] == [b"x"]
            with pytest.raises(PositionTrimmed):
                await anext(reader.read(start=Position(ledger, 1)))


async def test_the_last_entry_is_in_the_only_ledger_before_an_empty_one(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
        await stream.roll_over()
        async with cluster.client(2).read_stream(NAME, entry_format="raw") as reader:
            assert await reader.last_confirmed() == stream.last_confirmed == Position(0, 0)


async def test_a_listed_ledger_that_does_not_exist_is_dropped_and_said(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
        await stream.roll_over()
    await cluster.client().delete_ledger(1)
    async with cluster.client(2).open_stream(NAME, settings=RAW) as stream:
        assert stream.last_confirmed == Position(0, 0)
    assert [each.ledger for each in (await read_list(cluster)).ledgers] == [0, 2]
    assert "stream ledger missing" in cluster.kinds()


@pytest.mark.parametrize("fault", [REFUSE, LOSE])
async def test_an_attempt_that_died_leaves_a_note_and_the_next_deletes_its_ledger(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    faults.script = lambda changes: fault if of_list(changes) and isinstance(changes[0], Update) else None
    if fault == REFUSE:
        with pytest.raises(MetadataUnavailable):
            await bk.open_stream(NAME, settings=RAW)
        assert await notes(cluster) == [0] == await ledgers(cluster)
    else:
        await (await bk.open_stream(NAME, settings=RAW)).close()
        assert await notes(cluster) == []
    other = cluster.client(2)
    async with other.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
        await other.stream_context.deletions.done()
        assert await ledgers(cluster) == [1] and await notes(cluster) == []
    await bk.close()


async def test_a_lease_is_given_back_when_opening_fails(cluster: SmallCluster) -> None:
    await cluster.down("b0", "b1", "b2")
    with pytest.raises(NotEnoughBookies):
        await cluster.client().open_stream(NAME, settings=RAW)
    await cluster.up("b0", "b1", "b2")
    async with cluster.client(2).open_stream(NAME, settings=RAW) as stream:
        assert (await stream.append(b"x")).entry == 0


async def test_a_lease_is_given_back_when_opening_is_cancelled(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    hangs = asyncio.Event()

    async def never(*arguments: object, **more: object) -> None:
        hangs.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(bk.context.driver, "create_ledger", never)

    async def opening() -> None:
        await bk.open_stream(NAME, settings=RAW)

    task = asyncio.ensure_future(opening())
    await hangs.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with cluster.client(2).open_stream(NAME, settings=RAW) as stream:
        assert (await stream.append(b"x")).entry == 0


async def test_an_owner_that_was_slower_is_told_and_leaves_nothing(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = cluster.client()
    faults = StoreFaults(slow, monkeypatch)
    reached, goes_on = asyncio.Event(), asyncio.Event()
    change = faults.change

    async def slowly(*changes: object) -> None:
        if isinstance(changes[0], Update) and changes[0].path == PATH:
            reached.set()
            await goes_on.wait()
        await change(*changes)  # type: ignore[arg-type]

    monkeypatch.setattr(slow.context.driver.store, "change", slowly)

    async def opening() -> None:
        await slow.open_stream(NAME, settings=RAW)

    task = asyncio.ensure_future(opening())
    await reached.wait()
    fast = cluster.client(2)
    async with fast.open_stream(NAME, settings=RAW, takeover=True) as stream:
        await stream.append(b"x")
        goes_on.set()
        with pytest.raises(StreamFenced):
            await task
        await fast.stream_context.deletions.done()
        assert await stream.append(b"y") == Position(1, 1)
    assert await ledgers(cluster) == [1]


async def test_an_owner_deletes_no_ledger_that_the_next_one_has_made_and_is_about_to_list(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the notes behind its own list: that of the next one's ledger was among them."""
    first, second = cluster.client(1), cluster.client(2)
    listed, goes_on, made, is_listed = (asyncio.Event() for _ in range(4))
    first_change, second_change = first.context.driver.store.change, second.context.driver.store.change

    async def change_and_wait(*changes: Change) -> None:
        await first_change(*changes)
        if of_list(changes) and isinstance(changes[0], Update):
            listed.set()
            await goes_on.wait()

    async def wait_and_change(*changes: Change) -> None:
        if of_list(changes) and isinstance(changes[0], Update):
            made.set()
            await is_listed.wait()
        await second_change(*changes)

    monkeypatch.setattr(first.context.driver.store, "change", change_and_wait)
    monkeypatch.setattr(second.context.driver.store, "change", wait_and_change)

    async def open_(bk: BookKeeper, takeover: bool) -> Stream:
        return await bk.open_stream(NAME, settings=RAW, takeover=takeover)

    opening = asyncio.ensure_future(open_(first, False))
    await listed.wait()
    taking_over = asyncio.ensure_future(open_(second, True))
    await made.wait()
    goes_on.set()
    await opening
    await first.stream_context.deletions.done()
    is_listed.set()
    async with await taking_over as stream:
        await stream.append(b"x")
        await second.stream_context.deletions.done()
        assert [row.ledger for row in (await read_list(cluster)).ledgers] == [1]
        assert await ledgers(cluster) == [1]


async def test_what_a_terminated_stream_had_noted_is_deleted_by_who_opens_it(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
        catalog = bk.stream_context.catalog
        await bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])  # by one that died
        await stream.terminate()
    async with bk.open_stream(NAME, settings=RAW):
        await bk.stream_context.deletions.done()
        assert await ledgers(cluster) == [0] and await notes(cluster) == []


async def test_what_it_made_too_late_is_deleted_by_itself(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = cluster.client()
    create, reached, goes_on = slow.context.driver.create_ledger, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any, **more: Any) -> Any:
        reached.set()
        await goes_on.wait()
        return await create(*arguments, **more)

    monkeypatch.setattr(slow.context.driver, "create_ledger", slowly)

    async def opening() -> None:
        await slow.open_stream(NAME, settings=RAW)

    task = asyncio.ensure_future(opening())
    await reached.wait()
    async with cluster.client(2).open_stream(NAME, settings=RAW, takeover=True) as stream:
        goes_on.set()
        with pytest.raises(StreamFenced):
            await task
        await slow.stream_context.deletions.done()
        assert await ledgers(cluster) == [0] and await notes(cluster) == []
        await stream.append(b"x")


async def test_a_ledger_that_a_slow_server_does_not_have_yet_is_looked_for_once_more(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await cluster.client().open_stream(NAME, settings=RAW)).append(b"0")
    bk = cluster.client(2)
    driver, synced = bk.context.driver, list[int]()
    read, sync = driver.read_ledger, driver.sync

    async def lagging(ledger: int) -> Any:
        if not synced:
            raise NoSuchLedger(ledger=ledger)
        return await read(ledger)

    async def synced_now() -> Any:
        synced.append(1)
        return await sync()

    monkeypatch.setattr(driver, "read_ledger", lagging)
    monkeypatch.setattr(driver, "sync", synced_now)
    async with bk.open_stream(NAME, settings=RAW, takeover=True) as stream:
        assert stream.last_confirmed == Position(0, 0)


async def test_foreign_bytes_in_the_list_are_left_alone(cluster: SmallCluster) -> None:
    await list_as_a_broker(cluster)
    await cluster.store.change(Update(PATH, b"\xff\xff\xff", 1))
    with pytest.raises(MetadataError, match="no list of ledgers"):
        await cluster.client().open_stream(NAME)
    node = await cluster.store.get(PATH)
    assert node is not None and node.data == b"\xff\xff\xff" and await ledgers(cluster) == []


async def test_what_a_newer_version_stored_is_kept(cluster: SmallCluster) -> None:
    info = StreamInfo(
        (StreamLedger(0, 5, 10, 99, unknown=b"\x9a\x06\x03new"),), properties={"a": "b"}, unknown=b"\x9a\x06\x01x"
    )
    await list_as_a_broker(cluster)
    await cluster.store.change(Update(PATH, encode_stream(info), 1))
    await cluster.client(5).create_ledger(ledger_id=0)
    await cluster.client(5).create_ledger()
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
        await stream.roll_over()
    kept = await read_list(cluster)
    assert kept.ledgers[0] == info.ledgers[0] and kept.unknown == info.unknown and kept.properties == info.properties


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b/c",
        "t/n/persistent/..",
        "t/n/other/x",
        "/t/n/persistent/x",
        "t/n/persistent/",
        f"t/n/persistent/{'x' * 256}",
    ],
)
async def test_names_that_are_none(cluster: SmallCluster, name: str) -> None:
    with pytest.raises(UsageError):
        cluster.client().open_stream(name)


async def test_a_part_of_a_name_has_so_many_signs_at_most(cluster: SmallCluster) -> None:
    longest = LONGEST_PART * "x"
    async with cluster.client().open_stream(f"t/n/persistent/{longest}") as stream:
        assert await cluster.client(2).cursor(stream.name, longest)
        with pytest.raises(UsageError):
            cluster.client().open_stream(f"t/n/persistent/{longest}x")
        with pytest.raises(UsageError):
            cluster.client(2).cursor(stream.name, f"{longest}x")


async def test_a_name_as_pulsar_writes_it_is_the_same_stream(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream("persistent://t/n/a topic", settings=RAW) as stream:
        assert stream.name == "t/n/persistent/a+topic"
    bk = cluster.client(2)
    async with bk.open_stream("x/n/persistent/y", settings=RAW):
        assert [name async for name in bk.streams()] == ["t/n/persistent/a+topic", "x/n/persistent/y"]
        assert [name async for name in bk.streams("t/")] == ["t/n/persistent/a+topic"]


async def test_ids_that_went_back_are_refused(cluster: SmallCluster) -> None:
    await list_as_a_broker(cluster, StreamLedger(50, 1, 1, 1))
    with pytest.raises(MetadataError, match="lower ids"):
        await cluster.client().open_stream(NAME, settings=RAW)


async def test_an_id_that_is_listed_is_refused_though_its_ledger_is_gone(cluster: SmallCluster) -> None:
    await list_as_a_broker(cluster, StreamLedger(0, 1, 1, 1))
    with pytest.raises(MetadataError, match="lower ids"):
        await cluster.client().open_stream(NAME, settings=RAW)


async def test_an_owner_without_work_hears_of_another_that_has_the_stream(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    async with cluster.client(2).open_stream(NAME, settings=RAW, takeover=True):
        await asyncio.sleep(10)
        assert "fenced" in repr(stream) and "stream fenced" in cluster.kinds()


async def test_an_owner_that_cannot_look_whether_there_was_another_goes_on(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next change of the list finds out."""
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    async with bk.open_stream(NAME, settings=RAW) as stream:
        faults.is_away = True
        stream._owner._lease_regained()
        await asyncio.sleep(1)
        faults.is_away = False
        assert "stream step failed" in cluster.kinds()
        assert await stream.append(b"x") == Position(0, 0)
        await stream.roll_over()


async def test_an_owner_without_work_hears_of_another_that_came_and_went(cluster: SmallCluster) -> None:
    """Else it would have the lease again, and keep others from a stream that it cannot write."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await (await cluster.client(2).open_stream(NAME, settings=RAW, takeover=True)).close()
    await asyncio.sleep(10)
    assert "fenced" in repr(stream)
    with pytest.raises(StreamFenced) as fenced:
        await stream.append(b"x")
    assert not fenced.value.ambiguous
    async with cluster.client(3).open_stream(NAME, settings=RAW):
        pass
