"""What tasks read of a stream, beside what its reader delivers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from support.listed_streams import NAME, ListedStream, chunk_entries, pulsar_entry
from support.small_cluster import SmallCluster
from support.stream_partitions import partitions_of, rows_of, wanted
from tallystick.bookkeeper.stream import chunks
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.errors import CorruptEntry, NoSuchEntry
from tallystick.pipeline.columns import BATCH_BYTES, BATCH_ROWS
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.stream import earlier_chunks
from tallystick.pipeline.stream.read import read_partition
from tallystick.pipeline.stream.rows import SCHEMA
from tallystick.pipeline.stream.spans import BEFORE_LEDGERS


def some_entries(chance: random.Random) -> list[list[bytes]]:
    """Ledgers of messages, batches, and chunks: of several producers at once, sent again, out of order, or lost."""
    entries: list[bytes] = []
    waiting: list[list[bytes]] = []
    for number in range(60):
        kind = chance.random()
        if kind < 0.25:
            entries.append(pulsar_entry(b"m%d" % number, sequence=number))
        elif kind < 0.4:
            entries.append(pulsar_entry(b"x%d" % number, b"y%d" % number))
        elif kind < 0.55:
            waiting.append(chunk_entries(b"%03d" % number * 5, chance.choice((3, 7)), uuid=f"u{number % 4}"))
        elif waiting:
            parts = chance.choice(waiting)
            at = 0 if chance.random() < 0.9 else chance.randrange(len(parts))
            entries.append(parts[at])
            if chance.random() < 0.9:
                parts.pop(at)
            if not parts:
                waiting.remove(parts)
    ledgers: list[list[bytes]] = [[]]
    for entry in entries:
        if chance.random() < 0.08 and len(ledgers) < BEFORE_LEDGERS + 1:
            ledgers.append([])
        ledgers[-1].append(entry)
    return [ledger for ledger in ledgers if ledger]


async def delivered(cluster: SmallCluster, **request: Any) -> list[StreamMessage]:
    async with cluster.client(9).read_stream(NAME) as reader:
        return [message async for message in reader.read(**request)]


@pytest.mark.parametrize("seed", range(20))
async def test_rows_are_what_a_reader_of_the_whole_stream_gets_however_it_is_cut(
    cluster: SmallCluster, owner: ListedStream, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_chunks, "FIRST_WINDOW", 2)
    chance = random.Random(seed)
    await owner.create(*some_entries(chance))
    messages = [(str(message.position), message.data) for message in await delivered(cluster)]
    for limits in (Limits(), Limits(min_partitions=chance.randrange(2, 40)), Limits(max_partition_items=1)):
        rows = await rows_of(await partitions_of(cluster.client(8), wanted(limits)))
        assert [(row["position"], row["value"]) for row in rows] == messages


async def test_a_task_reads_chunks_before_its_entries_only_where_it_has_the_last_one(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    first, second, third = chunk_entries(b"abcdef", 2)
    await owner.create([pulsar_entry(b"x"), first, second], [pulsar_entry(b"y"), third])
    *_, before, last = await partitions_of(cluster.client(8), wanted(Limits(max_partition_items=1)))
    assert [(r.ledger, r.first, r.last) for r in last.ranges[0].before] == [
        (owner.info.ledgers[0].ledger, 0, 2), (owner.info.ledgers[1].ledger, 0, 0),
    ]  # fmt: skip
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    assert [row["value"] for row in await rows_of([before])] == [b"y"]
    assert sum(len(bookie.requests) for bookie in cluster.bookies.values()) == 1
    assert [row["value"] for row in await rows_of([last])] == [b"abcdef"]


async def test_a_message_whose_first_chunk_is_deleted_is_no_row(cluster: SmallCluster, owner: ListedStream) -> None:
    first, second, third = chunk_entries(b"abcdef", 2)
    await owner.create([first], [second, pulsar_entry(b"y"), third])
    await owner.trim(1)
    assert [row["value"] for row in await rows_of(await partitions_of(cluster.client(8), wanted()))] == [b"y"]


async def test_the_first_chunk_is_looked_for_behind_what_is_no_message_and_not_for_ever(
    cluster: SmallCluster, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_chunks, "MOST_BEFORE", 20)
    near, far = chunk_entries(b"abcdef", 3, uuid="near"), chunk_entries(b"ghijkl", 3, uuid="far")
    between = [pulsar_entry(b"x")] * 200
    await owner.create([far[0], *between, near[0], b"no message", near[1], far[1]])
    start = f"{owner.info.ledgers[0].ledger}:{len(between) + 3}"
    options = wanted(startingOffsets=f'{{"{NAME}": "{start}"}}')
    assert [row["value"] for row in await rows_of(await partitions_of(cluster.client(8), options))] == [b"abcdef"]


async def test_last_chunks_of_nothing_are_not_looked_for_again_and_again(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    """Each was looked for in all entries before it: whoever sends 25,000 of them held a task up for hours."""
    entries = [pulsar_entry(b"x")] * 600
    for number in range(400):
        name = f"u{number % 300}"  # some come twice
        entries.append(chunk_entries(b"abcdef", 2, uuid=name)[2])
    long = chunk_entries(b"ABCDEF", 2)
    await owner.create([*entries[:500], *long[:2], *entries[500:], long[2]])
    start = f"{owner.info.ledgers[0].ledger}:600"
    options = wanted(startingOffsets=f'{{"{NAME}": "{start}"}}')
    partitions = await partitions_of(cluster.client(8), options)
    for bookie in cluster.bookies.values():
        bookie.requests.clear()
    assert [row["value"] for row in await rows_of(partitions)] == [b"x", b"x", b"ABCDEF"]
    assert sum(len(bookie.requests) for bookie in cluster.bookies.values()) < 100


async def test_of_more_messages_than_are_kept_each_chunk_is_read_once_more(
    cluster: SmallCluster, owner: ListedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "MOST_MESSAGES", 3)
    whole = [chunk_entries(b"%06d" % number, 3, uuid=f"u{number}") for number in range(30)]
    await owner.create([parts[0] for parts in whole], [parts[1] for parts in whole])
    partitions = await partitions_of(cluster.client(8), wanted())
    assert [row["value"] for row in await rows_of(partitions)] == [b"%06d" % number for number in range(30)]


async def test_batches_of_raw_entries_are_bounded_by_their_bytes(cluster: SmallCluster, owner: ListedStream) -> None:
    """4096 entries of some megabytes are more than Arrow's offsets reach, and than an executor has."""
    entries = [bytes([number]) * 300_000 for number in range(20)]
    await owner.create(entries)
    [partition] = await partitions_of(cluster.client(8), wanted(entryFormat="raw"))
    batches = await asyncio.to_thread(lambda: list(read_partition(partition, SCHEMA)))
    assert [value for batch in batches for value in batch["value"].to_pylist()] == entries
    assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES


async def test_a_batch_of_long_messages_comes_in_parts_and_each_message_once(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    long = [bytes([number]) * 300_000 for number in range(12)]
    await owner.create([pulsar_entry(*long)])
    [partition] = await partitions_of(cluster.client(8), wanted())
    batches = await asyncio.to_thread(lambda: list(read_partition(partition, SCHEMA)))
    assert [value for batch in batches for value in batch["value"].to_pylist()] == long
    assert max(batch.nbytes for batch in batches) < 2 * BATCH_BYTES


async def test_many_messages_come_in_batches_of_rows(cluster: SmallCluster, owner: ListedStream) -> None:
    many = [b"%d" % number for number in range(3 * BATCH_ROWS)]
    await owner.create([pulsar_entry(*many)], [pulsar_entry(b"z" * 3_000_000), pulsar_entry(b"last")])
    [partition] = await partitions_of(cluster.client(8), wanted())
    rows = await rows_of([partition])
    assert [row["value"] for row in rows] == [*many, b"z" * 3_000_000, b"last"]
    assert [row["batchIndex"] for row in rows[-4:]] == [3 * BATCH_ROWS - 2, 3 * BATCH_ROWS - 1, None, None]


async def test_a_ledger_that_is_deleted_after_the_plan(
    cluster: SmallCluster, owner: ListedStream, capsys: pytest.CaptureFixture[str]
) -> None:
    await owner.create([pulsar_entry(b"a")], [pulsar_entry(b"b"), pulsar_entry(b"c")], [pulsar_entry(b"d")])
    strict = await partitions_of(cluster.client(8), wanted())
    lenient = await partitions_of(cluster.client(8), wanted(failOnDataLoss="false"))
    gone = owner.info.ledgers[1].ledger
    await owner.client.delete_ledger(gone)
    for bookie in cluster.bookies.values():
        bookie.keep_only({place: body for place, body in bookie.entries.items() if place[0] != gone})
    with pytest.raises(NoSuchEntry, match="failOnDataLoss=false leaves out") as raised:
        await rows_of(strict)
    assert raised.value.fields["stream"] == NAME and raised.value.ledger == gone
    assert [row["value"] for row in await rows_of(lenient)] == [b"a", b"d"]
    notes = capsys.readouterr().err
    assert f"tally-stream: the rest of a ledger is left out: stream={NAME} " in notes and f"ledger={gone}" in notes


async def test_a_damaged_entry_is_an_error_behind_the_rows_before_it(
    cluster: SmallCluster, owner: ListedStream
) -> None:
    await owner.create([pulsar_entry(b"a"), b"no message", pulsar_entry(b"c")])
    [partition] = await partitions_of(cluster.client(8), wanted())
    with pytest.raises(CorruptEntry, match=r"\[TALLY-CORRUPT-ENTRY\] .* entryFormat=raw") as raised:
        await rows_of([partition])
    assert str(raised.value.fields["position"]) == f"{owner.info.ledgers[0].ledger}:1"


async def test_values_that_java_sees_as_negative(cluster: SmallCluster, owner: ListedStream) -> None:
    await owner.create([pulsar_entry(b"a", sequence=(1 << 64) - 2, time_ms=1 << 40)])
    [row] = await rows_of(await partitions_of(cluster.client(8), wanted()))
    assert row["sequence"] == -2 and row["publishTime"].timestamp() == (1 << 40) / 1000
