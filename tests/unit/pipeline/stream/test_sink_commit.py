"""What the driver does with what the tasks of a batch wrote, without Spark."""

from __future__ import annotations

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, ledgers, notes, payloads
from tallystick.bookkeeper.stream.splice.attempt import SinkTicket
from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.errors import CheckpointLost, StreamOwned
from tallystick.pipeline.stream.sink import PartWritten, _committed, _existing
from tallystick.pipeline.stream.sink_options import SinkOptions


def wanted(**options: str) -> SinkOptions:
    named = {"uri": "sqlite:///unused", "stream": NAME, "entryFormat": "raw", "ensemble": "3", **options}
    return SinkOptions.parse(named, {}, follows=True)


def part(options: SinkOptions, *rows: bytes, ledger: WrittenLedger | None = None) -> PartWritten:
    ticket = SinkTicket(NAME, "app", "q", "run", options.settings)
    return PartWritten(ticket, ledger, tuple(map(OutMessage, rows)))


async def test_few_rows_of_all_tasks_are_one_ledger_in_the_order_of_the_tasks(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted()
    parts = [part(options, b"a", b"b"), part(options), part(options, b"c")]
    for _ in range(2):  # Spark commits it again after a restart
        await _committed(bk, options, parts, 0, True, None)
    assert await payloads(cluster) == [b"a", b"b", b"c"] and len(await ledgers(cluster)) == 1


async def test_the_retention_that_the_options_say_is_held_with_each_batch(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted(retentionBytes="1")
    for batch in range(4):
        await _committed(bk, options, [part(options, b"%d" % batch)], batch, True, None)
    assert await payloads(cluster) == [b"3"]
    await bk.stream_context.deletions.done()
    assert len(await ledgers(cluster)) == 1 and await notes(cluster) == []


async def test_what_a_task_wrote_that_ran_twice_is_swept_with_the_batch(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted()
    await _existing(bk, NAME)
    ticket, written = part(options).ticket, []
    for attempt in range(2):
        async with bk.sink_attempt(ticket, 0, 0, attempt) as task:
            await task.append(b"a")
            written.append(await task.close())
    await _committed(bk, options, [part(options, ledger=written[1])], 0, True, None)
    assert written[1] is not None and await ledgers(cluster) == [written[1].ledger]
    assert await payloads(cluster) == [b"a"]


async def test_the_ledgers_of_all_tasks_are_one_batch(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted()
    await _existing(bk, NAME)
    parts = [part(options, b"few")]
    for number in range(3):
        async with bk.sink_attempt(parts[0].ticket, 0, number, 0) as task:
            await task.append(b"%d" % number)
            parts.append(part(options, ledger=await task.close()))
    await _committed(bk, options, parts, 0, True, None)
    assert sorted(await payloads(cluster)) == [b"0", b"1", b"2", b"few"]


async def test_an_owners_stream_is_switched_if_the_options_say_so(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"a")
    for options in (wanted(), wanted(switch="true")):
        if options.switch:
            await _committed(bk, options, [part(options, b"b")], 0, True, None)
        else:
            with pytest.raises(StreamOwned):
                await _committed(bk, options, [part(options, b"b")], 0, True, None)
    assert await payloads(cluster) == [b"a", b"b"]


async def test_an_earlier_batch_is_of_an_older_checkpoint_or_of_a_job_that_runs_again(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted()
    for batch in range(2):
        await _committed(bk, options, [part(options, b"%d" % batch)], batch, True, None)
    with pytest.raises(CheckpointLost, match="comes again"):
        await _committed(bk, options, [part(options, b"0")], 0, True, None)
    await _committed(bk, options, [part(options, b"0")], 0, False, None)
    assert await payloads(cluster) == [b"0", b"1"]


async def test_a_stream_that_lacks_batches_that_it_had_is_not_written_on(cluster: SmallCluster) -> None:
    """Its metadata was put back from an older copy: the rows between would never come."""
    bk, options = cluster.client(), wanted()
    await _committed(bk, options, [part(options, b"0")], 0, True, None)
    put_back = await bk.stream_context.catalog.read(NAME)
    for batch in (1, 2):
        await _committed(bk, options, [part(options, b"%d" % batch)], batch, True, None)
    newest = await bk.stream_context.catalog.read(NAME)
    await bk.stream_context.catalog.write(NAME, put_back.value, newest.version)
    with pytest.raises(CheckpointLost, match="batch 2 of application app was committed to this stream, which lacks it"):
        await _committed(bk, options, [part(options, b"3")], 3, True, None)
    assert await payloads(cluster) == [b"0"]
    await _committed(bk, options, [part(options, b"3")], 3, False, None)  # versions of a job need not follow each other


async def test_a_stream_that_was_made_anew_is_not_written_on(cluster: SmallCluster) -> None:
    bk, options = cluster.client(), wanted()
    with pytest.raises(CheckpointLost, match="batch 4 of application app was committed to this stream, which lacks it"):
        await _committed(bk, options, [part(options, b"5")], 5, True, None, True)
    assert await payloads(cluster) == []
    await _committed(bk, options, [part(options, b"5")], 5, True, None, False)  # a query that takes another stream
    assert await payloads(cluster) == [b"5"]
