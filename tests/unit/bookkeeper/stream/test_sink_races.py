"""What others do to a stream while a sink writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, ledgers, notes, payloads, read_list
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.stream.catalog import StreamCatalog
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice import sink as splice_sink
from tallystick.bookkeeper.stream.splice.commit_core import Batch, WrittenLedger, is_stored, spliced
from tallystick.bookkeeper.stream.splice.record import SinkRecord, as_sink, is_sink, record_of, with_record
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.errors import (
    CheckpointLost,
    LedgerFenced,
    MetadataError,
    MetadataUncertain,
    NotEnoughBookies,
    StreamFenced,
    StreamOwned,
    StreamTerminated,
    TallyError,
    UsageError,
)


async def opened(bk: BookKeeper) -> StreamSink:
    return await bk.open_sink(NAME, "app", "q", settings=RAW)


async def recreate(bk: BookKeeper) -> None:
    """Delete the stream and make another one of its name, whose list has the version that the first one's has."""
    await bk.delete_stream(NAME)
    await opened(bk)


def just_before(
    monkeypatch: pytest.MonkeyPatch, bk: BookKeeper, name: str, other: Callable[[], Awaitable[Any]]
) -> None:
    """Once, somebody does that before this client's next call of its catalog."""
    call, left = getattr(StreamCatalog, name), [other]

    async def after_other(catalog: StreamCatalog, *arguments: Any, **more: Any) -> Any:
        if catalog is bk.stream_context.catalog and left:
            await left.pop()()
        return await call(catalog, *arguments, **more)

    monkeypatch.setattr(StreamCatalog, name, after_other)


@pytest.mark.parametrize("call", ["begin", "write"])
async def test_an_empty_batch_is_not_stored_in_another_stream_of_the_name(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    sink = await opened(bk)
    just_before(monkeypatch, bk, call, lambda: recreate(other))
    with pytest.raises(StreamFenced, match="made anew"):
        await sink.commit(0)


async def test_a_commit_whose_request_was_lost_is_made_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    async with sink.attempt(0) as attempt:
        await attempt.append(b"a")
        written = await attempt.close()

    async def lose() -> None:
        raise MetadataUncertain("the request was lost")

    just_before(monkeypatch, bk, "write", lose)
    assert not (await sink.commit(0, [written])).was_stored
    assert await payloads(cluster) == [b"a"]


async def test_a_run_is_not_begun_in_another_stream_of_the_name(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    await (await opened(bk)).commit(0)

    async def recreate_and_commit() -> None:
        await other.delete_stream(NAME)
        await (await opened(other)).commit(5)

    just_before(monkeypatch, bk, "begin", recreate_and_commit)
    assert (await opened(bk)).batch == 5


async def test_what_retention_dropped_or_a_sweep_condemned_is_deleted_by_the_next_sweep(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    catalog = bk.stream_context.catalog
    for is_condemned in (False, True):
        async with bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)]) as writer:
            await writer.append(b"dropped")
        if is_condemned:
            await catalog.condemn(NAME, writer.id)
    assert await sink.sweep() == [0, 1]
    assert (await ledgers(cluster), await notes(cluster)) == ([], [])


async def test_a_sweep_leaves_what_an_owner_notes_and_what_a_newer_version_says(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW):
        catalog = bk.stream_context.catalog
        await catalog.store.change(catalog.note(NAME, 77))
        assert await bk.sweep_sinks(NAME) == []
    await bk.delete_stream(NAME)
    sink = await opened(bk)
    await catalog.store.change(catalog.note(NAME, 78, data=b'{"another": "form"}'))
    assert await sink.sweep() == []


async def test_a_stream_that_a_broker_writes_is_not_switched(cluster: SmallCluster) -> None:
    bk = cluster.client()
    catalog = bk.stream_context.catalog
    stored = await catalog.create(NAME)
    async with bk.create_ledger() as brokers:
        await brokers.append(b"a")
        listed = StreamInfo((StreamLedger(brokers.id, has_counts=False),))
        await catalog.write(NAME, listed, stored.version)
        with pytest.raises(StreamOwned, match="a Pulsar broker may write it"):
            await bk.open_sink(NAME, "app", "q", switch=True)
        await brokers.append(b"b")


async def test_an_attempt_whose_ledger_was_fenced_fails_as_a_whole(cluster: SmallCluster) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    sink = await opened(bk)
    attempt = sink.attempt(0)
    await attempt.append(bytes(200_000))
    assert attempt.ledger is not None
    await asyncio.sleep(1)
    await other.open_ledger(attempt.ledger, recover=True)
    await attempt.append(b"a")
    with pytest.raises(LedgerFenced):
        await attempt.close()
    assert await payloads(cluster) == []


async def test_an_attempt_that_bookies_did_not_store_fails_as_a_whole(cluster: SmallCluster) -> None:
    sink = await opened(cluster.client(no_quorum_s=1.0))
    attempt = sink.attempt(0)
    await attempt.append(bytes(200_000))
    await asyncio.sleep(1)
    await cluster.down("b0", "b1")
    await attempt.append(b"a")
    with pytest.raises(NotEnoughBookies):
        await attempt.close()


async def test_an_attempt_that_is_given_up_writes_no_more(cluster: SmallCluster) -> None:
    sink = await opened(cluster.client())
    async with sink.attempt(0) as attempt:
        await attempt.append(bytes(200_000))
        writer = attempt._writer
    assert writer is not None
    with pytest.raises(TallyError):
        await writer.append(b"late")


async def test_an_attempt_waits_while_bookies_do_not_take_what_it_has(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await bk.open_sink(
        NAME, "app", "q", settings=StreamSettings(entry_format="raw", max_pending_bytes=1_002_000)
    )
    for bookie in cluster.bookies.values():
        bookie.held = []
    attempt = sink.attempt(0)
    taken = list[int]()

    async def write() -> None:
        for number in range(20):
            await attempt.append(bytes(200_000))
            taken.append(number)

    writing = asyncio.create_task(write())
    await asyncio.sleep(3)
    assert len(taken) == 5, "a megabyte"
    for bookie in cluster.bookies.values():
        bookie.release()
    await writing
    written = await attempt.close()
    await sink.commit(0, [written])
    assert len(await payloads(cluster)) == 20


async def test_an_attempt_that_is_closed_or_raw_takes_no_more_than_it_can(cluster: SmallCluster) -> None:
    sink = await opened(cluster.client())
    attempt = sink.attempt(0)
    with pytest.raises(UsageError, match="raw"):
        await attempt.append(b"a", key="k")
    with pytest.raises(UsageError, match="raw"):
        await attempt.append_batch([OutMessage(b"a", event_time_ms=5)])
    assert await attempt.close() is None
    with pytest.raises(UsageError, match="closed"):
        await attempt.append(b"a")
    with pytest.raises(UsageError, match="batch"):
        sink.attempt(-1)


def test_a_record_of_a_newer_version_is_not_read_as_one_of_this() -> None:
    """What it means by its batch nobody here knows."""
    info = with_record(as_sink(StreamInfo()), "app", SinkRecord("q", "r", 7))
    [(key, written)] = [(key, value) for key, value in info.properties.items() if "sink/" in key]
    newer = replace(info, properties={**info.properties, key: written.replace('"v":1', '"v":2')})
    assert record_of(info, "app") == SinkRecord("q", "r", 7) and newer != info
    with pytest.raises(MetadataError, match="newer version"):
        record_of(newer, "app")
    with pytest.raises(MetadataError, match="newer version"):
        is_sink(replace(info, properties={**info.properties, "tallystick/writer": "several owners"}))


async def test_a_trim_gives_way_to_the_commit_of_another_application(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch before it is stored: nothing has failed, and the next one trims."""
    bk, other = cluster.client(1), cluster.client(2)
    sink = await bk.open_sink(NAME, "app", "q", settings=replace(RAW, retention_bytes=0))
    for number in range(3):
        async with sink.attempt(number) as attempt:
            await attempt.append(b"a")
            await sink.commit(number, [await attempt.close()])
    another = await other.open_sink(NAME, "another", "q", settings=RAW)
    just_before(monkeypatch, bk, "begin", lambda: another.commit(0))
    assert await sink.trim() == []
    assert await sink.trim() == [0, 1]


def test_ledgers_are_listed_by_their_ids_and_the_record_decides() -> None:
    info = with_record(as_sink(StreamInfo()), "app", SinkRecord("q", "r"))
    batch = Batch("app", "q", "r", 0, (WrittenLedger(7, 1, 10), WrittenLedger(5, 2, 20)))
    stored = spliced(info, batch, now_ms=99)
    assert stored.ledgers == (StreamLedger(5, 2, 20, 99), StreamLedger(7, 1, 10, 99))
    assert not is_stored(info, batch, NAME) and is_stored(stored, batch, NAME)
    with pytest.raises(CheckpointLost):
        is_stored(stored, Batch("app", "another", "r", 1, ()), NAME)
    ended = replace(stored, terminated=Position(7, 0))
    assert is_stored(ended, batch, NAME)
    with pytest.raises(StreamTerminated):
        is_stored(ended, replace(batch, number=1), NAME)


async def test_a_batch_of_pulsar_messages_keeps_keys_and_times(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await bk.open_sink(NAME, "app", "q")
    async with sink.attempt(0) as attempt:
        await attempt.append(b"a", key="k", event_time=5, properties={"p": "v"})
        await attempt.append_batch([b"b", b"c"])
        written = await attempt.close()
    await sink.commit(0, [written])
    async with bk.read_stream(NAME) as reader:
        messages = [message async for message in reader.read()]
    assert [(m.data, m.key, m.event_time, dict(m.properties), m.producer) for m in messages] == [
        (b"a", "k", 5, {"p": "v"}, "tallystick/sink/app"),
        (b"b", None, None, {}, "tallystick/sink/app"),
        (b"c", None, None, {}, "tallystick/sink/app"),
    ]
    assert len((await read_list(cluster)).ledgers) == 1 and messages[0].position.batch_index == 0


async def test_rows_of_a_sink_are_no_numbers_of_a_producer_that_has_its_name(cluster: SmallCluster) -> None:
    """What the producer appends is acknowledged, and was never stored, if they pass for it."""
    bk = cluster.client()
    sink = await bk.open_sink(NAME, "app", "q")
    async with sink.attempt(0) as attempt:
        await attempt.append_batch([b"row"] * 10)
        written = await attempt.close()
    await sink.commit(0, [written])
    async with bk.open_stream(NAME, takeover=True) as stream:
        for number in range(3):
            assert (await stream.append(b"%d" % number, producer="app", sequence=number)).ledger > 0
        with pytest.raises(UsageError, match="owners and sinks have such names"):
            await stream.append(b"x", producer="tallystick/sink/app", sequence=0)
    async with bk.read_stream(NAME) as reader:
        assert [message.data async for message in reader.read()] == [b"row"] * 10 + [b"0", b"1", b"2"]


@pytest.mark.parametrize("is_listed", [False, True])
async def test_a_ledger_whose_id_was_drawn_before_an_owner_came_and_went_is_behind_every_mark(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    """ZooKeeper gives an id first and makes its ledger later. A cursor at the end of the owner's empty ledger would
    pass over one of a lower id for ever. A stream that was handed over lists no empty ledger."""
    bk, other = cluster.client(1), cluster.client(2)
    sink = await bk.open_sink(NAME, "app", "q", run="r", settings=RAW)
    async with sink.attempt(0) as attempt:
        await attempt.append(b"first")
        written = await attempt.close()
    await sink.commit(0, [written])
    ids, store = bk.context.driver._ids, bk.context.driver.store  # type: ignore[attr-defined]
    drawn = await ids.create_next(lambda ledger: ())
    owner = other.open_stream(NAME, settings=RAW, takeover=True)
    async with owner, other.cursor(NAME, "c", start="end", entry_format="raw") as cursor:
        assert cursor.mark.ledger > drawn
    if not is_listed:
        catalog = other.stream_context.catalog
        stored = await catalog.read(NAME)
        shorter = replace(stored.value, ledgers=stored.value.ledgers[:-1])
        await catalog.write(NAME, shorter, stored.version, noted=[stored.value.ledgers[-1].ledger])
    sink = await bk.open_sink(NAME, "app", "q", run="r", switch=True, settings=RAW)

    async def make_it_now(create: Callable[[int], Any]) -> int:
        await store.change(*create(drawn))
        return int(drawn)

    with monkeypatch.context() as patched:
        patched.setattr(ids, "create_next", make_it_now)
        async with sink.attempt(1) as attempt:
            await attempt.append(b"a")
            written = await attempt.close()
    assert (await sink.commit(1, [written])).ledgers > (drawn,), "a copy"
    async with other.cursor(NAME, "c", entry_format="raw") as cursor:
        assert [message.data for message in await cursor.read(10)] == [b"a"]
    await bk.stream_context.deletions.done()
    await sink.sweep()
    async with other.open_stream(NAME, settings=RAW, takeover=True) as stream:
        await stream.append(b"b")
    await other.stream_context.deletions.done()
    assert await payloads(cluster) == [b"first", b"a", b"b"] and await notes(cluster) == []


@pytest.mark.parametrize("is_saved", [False, True])
async def test_numbers_of_an_owner_that_died_outlive_what_sinks_trim(cluster: SmallCluster, is_saved: bool) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    settings = StreamSettings(retention_s=0)
    if is_saved:
        async with bk.open_stream(NAME) as stream:
            await stream.append(b"0", producer="p", sequence=0)
    stream = await bk.open_stream(NAME)
    await stream.append(b"1", producer="p", sequence=1)
    stream.abort()
    sink = await other.open_sink(NAME, "app", "q", switch=True, settings=settings)
    for batch in range(2):
        async with sink.attempt(batch) as attempt:
            await attempt.append(b"row")
            written = await attempt.close()
        await sink.commit(batch, [written])
    await asyncio.sleep(1)
    assert len(await sink.trim()) >= 2, "those of the owner, and the first of the batches"
    async with other.open_stream(NAME, takeover=True) as stream:
        for number in range(2):
            await stream.append(b"again", producer="p", sequence=number)
    async with other.read_stream(NAME) as reader:
        assert [message.data async for message in reader.read()] == [b"row"]


async def test_a_stream_on_which_nobody_numbers_appends_is_not_read_for_sinks(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        await stream.append(b"a")
    await bk.open_sink(NAME, "app", "q", switch=True)
    assert await bk.stream_context.catalog.cursors(NAME) == []


async def test_a_stream_that_is_switched_has_no_open_ledger(cluster: SmallCluster) -> None:
    """Nobody would close it any more: whoever looks after the bookies would recover it."""
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"a")
    await bk.open_sink(NAME, "app", "q", switch=True, settings=RAW)
    for listed in (await read_list(cluster)).ledgers:
        async with bk.open_ledger(listed.ledger) as reader:
            assert reader.is_closed


async def test_a_copy_reads_no_more_than_bookies_take(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger may have more than there is memory."""
    bk, count = cluster.client(), 0
    slow, fast = await opened(bk), await bk.open_sink(NAME, "another", "q", settings=RAW)
    written = list[WrittenLedger | None]()
    for sink, rows in ((slow, [b"%d" % number + bytes(400) for number in range(20)]), (fast, [b"fast"])):
        async with sink.attempt(0) as attempt:
            for row in rows:
                await attempt.append(row)
            written.append(await attempt.close())
    await fast.commit(0, written[1:])
    append = LedgerWriter.append_nowait

    def counted(writer: LedgerWriter, data: Any) -> Any:
        nonlocal count
        count += 1
        return append(writer, data)

    monkeypatch.setattr(LedgerWriter, "append_nowait", counted)
    monkeypatch.setattr(splice_sink, "_COPY_BYTES", 1000)
    for bookie in cluster.bookies.values():
        bookie.held = []
    committing = asyncio.create_task(slow.commit(0, written[:1]))
    await asyncio.sleep(3)
    assert count == 3
    for bookie in cluster.bookies.values():
        bookie.release()
    await committing
    assert count == 20 and len(await payloads(cluster)) == 21


async def test_a_commit_is_not_misled_by_a_metadata_server_that_lags(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a stream of the name still that was deleted before this one was made."""
    bk, other = cluster.client(1), cluster.client(2)
    await opened(other)
    store, path = bk.stream_context.catalog.store, bk.stream_context.catalog.paths.stream(NAME)
    get, sync, former = store.get, store.sync, [await store.get(path)]
    await other.delete_stream(NAME)
    sink = await opened(bk)

    async def caught_up() -> Any:
        former.clear()
        return await sync()

    async def lagging(asked: str) -> Any:
        return former[0] if former and asked == path else await get(asked)

    monkeypatch.setattr(store, "sync", caught_up)
    monkeypatch.setattr(store, "get", lagging)
    assert not (await sink.commit(0)).was_stored
