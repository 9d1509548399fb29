"""Batches into a stream, each exactly once: whole ledgers are spliced into its list by one compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, REFUSE, StoreFaults, ledgers, notes, of_list, once, payloads, read_list
from tallystick.bookkeeper.stream.append_flow import APPEND_COST_BYTES
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.splice import list_size
from tallystick.bookkeeper.stream.splice.attempt import MOST_MESSAGES
from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger
from tallystick.bookkeeper.stream.splice.record import RUNS_BEFORE, SinkRecord, record_of
from tallystick.bookkeeper.stream.splice.sink import StreamSink
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.errors import (
    CheckpointLost,
    LedgerClosed,
    LedgerError,
    MetadataUnavailable,
    NoSuchLedger,
    StreamFenced,
    StreamOwned,
    UsageError,
)

RAW = StreamSettings(entry_format="raw")


async def opened(bk: BookKeeper, *, query: str = "q", application: str = "app", switch: bool = False) -> StreamSink:
    return await bk.open_sink(NAME, application, query, switch=switch, settings=RAW)


async def part(
    bk: BookKeeper, sink: StreamSink, batch: int, rows: Sequence[bytes], partition: int = 0, attempt: int = 0
) -> WrittenLedger | None:
    """What an attempt writes in whatever process."""
    async with bk.sink_attempt(sink.ticket, batch, partition, attempt) as written:
        for row in rows:
            await written.append(row)
        return await written.close()


async def committed(bk: BookKeeper, sink: StreamSink, batch: int, *parts: Sequence[bytes]) -> bool:
    """Returns whether it was stored before."""
    written = [await part(bk, sink, batch, rows, number) for number, rows in enumerate(parts)]
    return (await sink.commit(batch, written)).was_stored


async def listed(cluster: SmallCluster) -> list[int]:
    return [each.ledger for each in (await read_list(cluster)).ledgers]


async def test_a_batch_is_there_as_a_whole_or_not_at_all(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = [
        await part(bk, sink, 0, [b"a", b"b"]),
        await part(bk, sink, 0, [], 1),
        await part(bk, sink, 0, [b"c"], 2),
    ]
    assert await payloads(cluster) == [] and written[1] is None, "a part without rows has no ledger"
    assert (await sink.commit(0, written)).ledgers == (0, 1)
    assert await payloads(cluster) == [b"a", b"b", b"c"]
    info = await read_list(cluster)
    assert [(each.entries, each.size, each.is_closed) for each in info.ledgers] == [(2, 2, True), (1, 1, True)]
    assert record_of(info, "app") == SinkRecord("q", sink.ticket.run, 0) and await notes(cluster) == []


async def test_a_repeated_batch_changes_nothing_and_leaves_nothing(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    assert not await committed(bk, sink, 0, [b"a"])
    assert await committed(bk, sink, 0, [b"a, written again"])
    await committed(bk, sink, 1, [])
    await sink.commit(0)
    assert sink.batch == 1, "it goes on behind that, whatever comes again"
    assert await payloads(cluster) == [b"a"]
    assert await sink.sweep() == [1]
    assert (await ledgers(cluster), await notes(cluster)) == ([0], [])


async def test_another_life_of_the_query_goes_on_behind_what_is_stored(cluster: SmallCluster) -> None:
    first, second = cluster.client(1), cluster.client(2)
    paused = await opened(first)
    await committed(first, paused, 0, [b"a"])
    late = await part(first, paused, 1, [b"b, by the first"])
    sink = await opened(second)
    assert sink.batch == 0
    assert not await committed(second, sink, 1, [b"b"])
    assert (await paused.commit(1, [late])).was_stored, "the batch is stored, whoever did it"
    with pytest.raises(StreamFenced, match=f"run {sink.ticket.run} goes on"):
        await committed(first, paused, 2, [b"c, by the first"])
    assert await payloads(cluster) == [b"a", b"b"]
    assert await sink.sweep() == [1, 3]
    assert await ledgers(cluster) == [0, 2]


async def test_a_query_that_lost_its_checkpoint_is_refused_before_a_row_is_visible(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk, query="old")
    await committed(bk, sink, 0, [b"a"])
    with pytest.raises(CheckpointLost, match=r"batch 0 under query old.*Restore the checkpoint") as lost:
        await opened(bk, query="new")
    assert (lost.value.query, lost.value.batch, lost.value.application) == ("old", 0, "app")
    assert not await committed(bk, sink, 1, [b"b"]), "the one that is refused ends nobody"


async def test_applications_write_one_stream_side_by_side(cluster: SmallCluster) -> None:
    bk = cluster.client()
    one, two = await opened(bk), await opened(bk, application="other", query="p")
    slow = await part(bk, one, 0, [b"a", b"b"])
    await committed(bk, two, 0, [b"c"])
    assert (await one.commit(0, [slow])).ledgers == (2,), "ids ascend in the list: it is a copy"
    assert await payloads(cluster) == [b"c", b"a", b"b"]
    assert await one.sweep() == [0] and await ledgers(cluster) == [1, 2]


@pytest.mark.parametrize("fault", [REFUSE, LOSE])
async def test_a_commit_whose_answer_is_lost_is_made_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = await part(bk, sink, 0, [b"a"])
    faults = StoreFaults(bk, monkeypatch)
    faults.script = once(fault, of_list)
    if fault == REFUSE:
        with pytest.raises(MetadataUnavailable):
            await sink.commit(0, [written])
        assert await payloads(cluster) == []
    result = await sink.commit(0, [written])
    assert (result.ledgers, result.was_stored) == ((0,), False)
    assert await payloads(cluster) == [b"a"] and await listed(cluster) == [0]


async def test_of_two_commits_at_once_both_are_stored_once(cluster: SmallCluster) -> None:
    clients = [cluster.client(seed) for seed in range(4)]
    sinks = [await opened(bk, application=f"app-{number}") for number, bk in enumerate(clients)]

    async def run(bk: BookKeeper, sink: StreamSink) -> None:
        for batch in range(5):
            await committed(bk, sink, batch, [f"{sink.ticket.application}/{batch}".encode()])

    await asyncio.gather(*(run(bk, sink) for bk, sink in zip(clients, sinks, strict=True)))
    rows = await payloads(cluster)
    assert sorted(rows) == sorted(f"app-{number}/{batch}".encode() for number in range(4) for batch in range(5))
    for number in range(4):
        own = [row for row in rows if row.startswith(b"app-%d/" % number)]
        assert own == sorted(own), "batches of one application are in order"


async def test_a_ledger_that_is_not_what_its_attempt_said_is_not_committed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = await part(bk, sink, 0, [b"a", b"b"])
    assert written is not None
    for lie in (replace(written, entries=1), replace(written, size=3)):
        with pytest.raises(LedgerError, match="another end"):
            await sink.commit(0, [lie])
    open_one = bk.sink_attempt(sink.ticket, 0, 1)
    await open_one.append(bytes(200_000))
    assert open_one.ledger is not None
    with pytest.raises(LedgerClosed, match="not closed"):
        await sink.commit(0, [WrittenLedger(open_one.ledger, 1, 200_000)])
    with pytest.raises(NoSuchLedger):
        await sink.commit(0, [WrittenLedger(77, 1, 1)])
    with pytest.raises(UsageError, match="twice"):
        await sink.commit(0, [written, written])
    assert await payloads(cluster) == [] and sink.batch == -1
    await sink.commit(0, [written])
    assert await payloads(cluster) == [b"a", b"b"]


async def test_a_ledger_of_a_batch_that_is_listed_is_copied_and_not_listed_twice(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = await part(bk, sink, 0, [b"a", b"b"])
    await sink.commit(0, [written])
    await sink.commit(1, [written])
    assert await payloads(cluster) == [b"a", b"b"] * 2
    ids = await listed(cluster)
    assert len(ids) == 2 and ids[0] < ids[1]


async def test_an_attempt_whose_end_is_cancelled_leaves_no_open_writer(cluster: SmallCluster) -> None:
    bk = cluster.client()
    attempt = (await opened(bk)).attempt(0)
    await attempt.append(b"x")
    for bookie in cluster.bookies.values():
        bookie.held = []
    closing = asyncio.ensure_future(attempt.close())
    await asyncio.sleep(1)
    assert list(bk._writers.open) == [attempt.ledger]
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not bk._writers.open


async def test_a_sweep_leaves_what_may_still_be_committed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = await part(bk, sink, 0, [b"a"])
    early = await part(bk, sink, 1, [b"b"])
    assert await bk.sweep_sinks(NAME) == []
    await sink.commit(0, [written])
    assert await bk.sweep_sinks(NAME) == []
    await sink.commit(1, [early])
    assert await payloads(cluster) == [b"a", b"b"]


async def test_a_ledger_that_was_swept_is_not_committed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    written = await part(bk, sink, 0, [b"a"])
    assert written is not None
    await bk.stream_context.catalog.condemn(NAME, written.ledger)
    with pytest.raises(NoSuchLedger, match="swept"):
        await sink.commit(0, [written])
    assert await payloads(cluster) == []


async def test_owners_and_sinks_do_not_write_the_same_stream(cluster: SmallCluster) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"a")
        with pytest.raises(StreamOwned, match="switch=True"):
            await opened(other)
        with pytest.raises(StreamOwned):
            await opened(other, switch=True)
    sink = await opened(other, switch=True)
    await committed(other, sink, 0, [b"b"])
    with pytest.raises(StreamOwned, match="of these applications: app"):
        await bk.open_stream(NAME, settings=RAW)
    written = await part(other, sink, 1, [b"never"])
    async with bk.open_stream(NAME, settings=RAW, takeover=True) as stream:
        await stream.append(b"c")
        with pytest.raises(StreamOwned):
            await sink.commit(1, [written])
    assert await payloads(cluster) == [b"a", b"b", b"c"]
    sink = await opened(other, switch=True)
    assert sink.batch == 0, "what was committed stays known"
    await bk.stream_context.deletions.done()
    await other.stream_context.deletions.done()
    assert await sink.sweep() in ([], [written.ledger if written else None])
    assert await notes(cluster) == []


async def test_a_new_stream_needs_no_switch_and_may_have_one(cluster: SmallCluster) -> None:
    sink = await opened(cluster.client(3), switch=True)
    assert not await committed(cluster.client(3), sink, 0, [b"a"])
    assert await payloads(cluster) == [b"a"]


async def test_a_stream_that_is_switched_keeps_nothing_of_owners_that_died(cluster: SmallCluster) -> None:
    """One with an open ledger without entries, and one before it had listed its ledger."""
    dead, bk = cluster.client(1), cluster.client(2)
    catalog = bk.stream_context.catalog
    async with dead.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"a")
    await dead.open_stream(NAME, settings=RAW)
    await dead.close()
    unlisted = await bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])
    assert await ledgers(cluster) == [0, 1, unlisted.id]
    await opened(bk, switch=True)
    await bk.stream_context.deletions.done()
    # The last one is above all ids that were drawn before.
    assert await listed(cluster) == await ledgers(cluster) == [0, unlisted.id + 1] and await notes(cluster) == []


async def test_a_stream_whose_newest_ledger_is_a_brokers_is_refused(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await opened(bk)
    await committed(bk, sink, 0, [b"a"])
    catalog = bk.stream_context.catalog
    stored = await catalog.read(NAME)
    async with bk.create_ledger() as brokers:
        newest = stored.value.ledgers[-1]._replace(ledger=brokers.id, timestamp_ms=0, has_counts=False)
        await catalog.write(NAME, replace(stored.value, ledgers=(*stored.value.ledgers, newest)), stored.version)
        with pytest.raises(StreamOwned, match="Pulsar broker"):
            await committed(bk, sink, 1, [b"b"])
        with pytest.raises(StreamOwned, match="Pulsar broker"):
            await opened(bk)


async def test_a_stream_that_was_made_anew_gets_nothing_of_the_one_before(cluster: SmallCluster) -> None:
    bk, other = cluster.client(1), cluster.client(2)
    sink = await opened(bk)
    await committed(bk, sink, 0, [b"a"])
    written = await part(bk, sink, 1, [b"b"])
    await other.delete_stream(NAME)
    again = await opened(other)
    with pytest.raises(StreamFenced, match="made anew"):
        await sink.commit(1, [written])
    assert await payloads(cluster) == [] and again.batch == -1


async def test_retention_drops_committed_ledgers(cluster: SmallCluster) -> None:
    bk = cluster.client()
    sink = await bk.open_sink(NAME, "app", "q", settings=replace(RAW, retention_s=120))
    for batch in range(3):
        await committed(bk, sink, batch, [b"%d" % batch])
        await asyncio.sleep(50)
    assert await sink.trim() == [0]
    await bk.stream_context.deletions.done()
    assert (await payloads(cluster), await ledgers(cluster)) == ([b"1", b"2"], [1, 2])


async def test_readers_follow_what_sinks_commit(cluster: SmallCluster) -> None:
    bk, heard = cluster.client(), list[bytes]()
    sink = await opened(bk)

    async def follow() -> None:
        async with bk.read_stream(NAME, entry_format="raw") as reader:
            async for message in reader.read(follow=True):
                heard.append(message.data)

    following = asyncio.create_task(follow())
    for batch in range(3):
        await asyncio.sleep(1)
        assert heard == [b"%d" % number for number in range(batch)]
        await committed(bk, sink, batch, [b"%d" % batch])
    await asyncio.sleep(1)
    assert heard == [b"0", b"1", b"2"]
    following.cancel()


async def test_a_run_that_is_known_goes_on_and_one_that_is_over_does_not(cluster: SmallCluster) -> None:
    bk = cluster.client()
    for run in ("one", "one", "two"):
        sink = await bk.open_sink(NAME, "app", "q", run=run, settings=RAW)
    assert record_of(await read_list(cluster), "app") == SinkRecord("q", "two", before=("one",))
    with pytest.raises(StreamFenced, match="run two goes on"):
        await bk.open_sink(NAME, "app", "q", run="one", settings=RAW)
    old = bk.sink_attempt(replace(sink.ticket, run="one"), 0, 0)
    new = bk.sink_attempt(replace(sink.ticket, run="three"), 0, 0)
    for attempt in (old, new):
        await attempt.append(b"a")
        await attempt.close()
    assert await sink.sweep() == [old.ledger], "a run that nobody knows may begin"
    for number in range(RUNS_BEFORE + 1):
        await bk.open_sink(NAME, "app", "q", run=f"later-{number}", settings=RAW)
    record = record_of(await read_list(cluster), "app")
    assert record is not None and len(record.before) == RUNS_BEFORE and "one" not in record.before


async def test_messages_whose_keys_or_properties_are_long_share_no_entry_that_is_too_long(
    cluster: SmallCluster,
) -> None:
    bk = cluster.client()
    sink = await bk.open_sink(NAME, "app", "q")
    keys = [OutMessage(b"", key="k" * 10_000)] * 1000
    properties = [OutMessage(b"", properties={"name": "v" * 10_000})] * 1000
    long_behind_short = [OutMessage(bytes(100_000)), OutMessage(bytes(5_200_000))]
    async with sink.attempt(0) as attempt:
        await attempt.append_batch([*long_behind_short, *keys, *properties])
        written = await attempt.close()
    assert written is not None
    await sink.commit(0, [written])
    async with bk.read_stream(NAME) as reader:
        sizes = [len(message.key or b"") + len(message.data) async for message in reader.read()]
    assert sizes == [100_000, 5_200_000] + [10_000] * 1000 + [0] * 1000


async def test_others_have_turns_while_very_many_empty_rows_are_appended(cluster: SmallCluster) -> None:
    bk, turns = cluster.client(), 0

    async def others() -> None:
        nonlocal turns
        for turns in range(100):  # noqa: B007
            await asyncio.sleep(0)

    sink = await opened(bk)
    async with sink.attempt(0) as attempt:
        await attempt.append_batch([b"the ledger is made with these"] * MOST_MESSAGES)
        task = asyncio.create_task(others())
        await attempt.append_batch([b""] * 10 * MOST_MESSAGES)
        assert turns >= 9
        assert attempt._pending_bytes >= 10 * MOST_MESSAGES * APPEND_COST_BYTES, "empty ones take memory, too"
    await task


async def test_an_application_that_makes_the_list_too_long_is_refused_and_the_others_go_on(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves a record for good: nobody could write the list any more."""
    bk = cluster.client()
    sink = await opened(bk)
    monkeypatch.setattr(list_size, "MOST_LIST_BYTES", 4000)
    with pytest.raises(UsageError, match="too long"):
        for number in range(100):
            await opened(bk, application=sha256(b"%d" % number).hexdigest())
    records = len((await read_list(cluster)).properties)
    assert 10 < records < 50
    assert not await committed(bk, sink, 0), "the others commit"
    await opened(bk)  # and begin again
    assert len((await read_list(cluster)).properties) == records


async def test_a_commit_that_makes_the_list_too_long_stores_nothing_until_retention_has_made_room(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is stored and too long is one that nobody can change any more: no owner, no trim, no broker."""
    bk = cluster.client()
    sink = await bk.open_sink(NAME, "app", "q", settings=replace(RAW, retention_bytes=0))
    monkeypatch.setattr(list_size, "MOST_LIST_BYTES", 400)
    with pytest.raises(UsageError, match="let retention delete what is old"):
        for number in range(100):
            await committed(bk, sink, number, [b"a"])
    assert await listed(cluster) == list(range(sink.batch + 1)), "nothing of the last one"
    assert len(await sink.trim()) == sink.batch
    assert not await committed(bk, sink, sink.batch + 1, [b"a"])


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
async def test_names_that_a_record_keeps_are_short(cluster: SmallCluster, name: str) -> None:
    bk = cluster.client()
    with pytest.raises(UsageError, match="query has 1 to 255 characters"):
        await bk.open_sink(NAME, "app", name)
    with pytest.raises(UsageError, match="run has 1 to 255 characters"):
        await bk.open_sink(NAME, "app", "q", run=name)
    with pytest.raises(UsageError, match="application has 1 to 255 characters"):
        await bk.open_sink(NAME, name, "q")


async def test_the_last_batch_comes_again_with_the_end_that_it_had(cluster: SmallCluster) -> None:
    """Of a checkpoint that was put back from a copy it has other rows: to leave them out would lose some."""
    bk = cluster.client()
    sink = await opened(bk)
    await sink.commit(0, [await part(bk, sink, 0, [b"a"])], offsets=7)
    again = await bk.open_sink(NAME, "app", "q", settings=RAW)
    for same_or_unknown in (7, None):
        assert (await again.commit(0, [await part(bk, again, 0, [b"a"])], offsets=same_or_unknown)).was_stored
    with pytest.raises(CheckpointLost, match="an older copy"):
        await again.commit(0, [await part(bk, again, 0, [b"a", b"b"])], offsets=8)
    assert await payloads(cluster) == [b"a"]
    await again.commit(1, offsets=9)
    info = await read_list(cluster)
    assert record_of(info, "app") == SinkRecord("q", again.ticket.run, 1, (sink.ticket.run,), 9)
    assert (await again.commit(0, offsets=8)).was_stored, "of an earlier one nobody knows the end any more"
