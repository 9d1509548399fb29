"""Owners of the stream promise no more than is stored, and the next one repeats what is in doubt: it is stored once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from examples.flights.acks import AckLog, read_log
from examples.flights.data import Flight, flights, load
from examples.flights.leash import Leash
from examples.flights.stream_story import StreamRun, read_back
from examples.flights.writer import PRODUCER, STREAM, Publisher, runs, stored_after
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.wire.stream_values import Position

ROWS, RATE = 50, 1000.0
TABLE = load(ROWS)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


def batches(first: int, end: int = ROWS) -> Iterator[list[Flight]]:
    return flights(TABLE.slice(0, end), first, 10)


async def publish(
    cluster: SmallCluster, seed: int, log: Path, first: int, end: int, stored: Mapping[int, Position] | None = None
) -> None:
    with AckLog(str(log)) as opened:
        async with cluster.client(seed).open_stream(STREAM) as stream:
            await Publisher(stream, opened, stored or {}).publish(batches(first, end), first, RATE, Leash(str))


async def test_each_row_is_a_message_with_its_key_time_and_number(cluster: SmallCluster, tmp_path: Path) -> None:
    await publish(cluster, 1, tmp_path / "log", 0, ROWS)
    async with cluster.client(2).read_stream(STREAM) as reader:
        read = [message async for message in reader.read()]
    assert (
        [message.sequence for message in read]
        == list(range(ROWS))
        == [msgspec.json.decode(message.data)["row"] for message in read]
    )
    assert (read[0].key, read[0].producer, read[0].event_time) == ("UA", PRODUCER, 1357035300000)  # 5:15 in New York
    assert sum(run.count for run in read_log(tmp_path / "log").runs) == ROWS
    assert {run.part for run in read_log(tmp_path / "log").runs} == {read[0].position.ledger}


async def test_rows_in_doubt_are_repeated_and_stored_once(cluster: SmallCluster, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    await publish(cluster, 1, first, 0, 30)
    kept = first.read_text().splitlines(keepends=True)[:2]  # rows 20 to 29 were stored, and their owner did not say so
    first.write_text("".join(kept))
    client = cluster.client(2)
    stored = await stored_after(client, read_log(first))
    assert sorted(stored) == list(range(20, 30))
    await publish(cluster, 3, second, 20, ROWS, stored)
    assert [step.text for step in read_log(second).steps] == [
        "10 rows were repeated with their numbers: 0 are stored twice"
    ]
    told = [*read_log(first).runs, *read_log(second).runs]
    assert [run.row for run in told] == [0, 10, 20, 30, 40] and sum(run.count for run in told) == ROWS
    assert told[2].part == told[1].part != told[3].part, "a repeat is where its row was stored first"
    found = StreamRun()
    await read_back(client, TABLE, found)
    assert (found.messages, found.unlike, found.ledgers) == (ROWS, 0, [told[0].part, told[3].part])


async def test_the_end_of_a_stream_of_which_nothing_is_promised(cluster: SmallCluster, tmp_path: Path) -> None:
    await publish(cluster, 1, tmp_path / "log", 0, 30)
    assert sorted(await stored_after(cluster.client(2), read_log(tmp_path / "none"))) == list(range(30))


@pytest.mark.parametrize("numbers", [[0, 2], [0, 0], [1]])
async def test_a_message_that_is_lost_doubled_or_another_is_counted(cluster: SmallCluster, numbers: list[int]) -> None:
    async with cluster.client(1).open_stream(STREAM) as stream:
        for number, row in enumerate(numbers):
            data, carrier, scheduled_ms = next(flights(TABLE, row, 1))[0]
            await stream.append(data, key=carrier, event_time=scheduled_ms, producer=PRODUCER, sequence=number)
    found = StreamRun()
    await read_back(cluster.client(2), TABLE, found)
    assert (found.messages, found.unlike) == (len(numbers), 1)


def test_runs_end_where_a_ledger_does() -> None:
    positions = [Position(1, 8), Position(1, 9), Position(3, 0), Position(3, 1), Position(3, 3)]
    assert list(runs(20, positions)) == [(1, 8, 20, 2), (3, 0, 22, 2), (3, 3, 24, 1)]
    assert list(runs(20, [])) == []
