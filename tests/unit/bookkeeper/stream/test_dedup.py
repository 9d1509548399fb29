"""Numbered appends through owners, roll-overs and changes of owner: each is stored once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import EARLIEST
from tallystick.bookkeeper.wire.streams_pb2 import MessageMetadata
from tallystick.errors import StreamOwned, UsageError

NAME = "t/n/persistent/topic"
SMALL = StreamSettings(ensemble=3, max_entries_per_ledger=3)


async def messages(bk: BookKeeper, name: str = NAME) -> list[bytes]:
    async with bk.read_stream(name) as reader:
        return [bytes(message.data) async for message in reader.read()]


async def test_a_repeat_has_the_first_position_and_is_stored_once(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        first = await stream.append(b"a", producer="p", sequence=5)
        assert await stream.append(b"a again", producer="p", sequence=5) == first
        assert await stream.append(b"older", producer="p", sequence=3) == EARLIEST
        assert await stream.append(b"b", producer="q", sequence=5) != first
    assert await messages(bk) == [b"a", b"b"]


async def test_repeats_of_what_is_on_its_way_wait_for_it(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        futures = [stream.append_nowait(b"x", producer="p", sequence=number) for number in (0, 1, 1, 0, 1)]
        positions = await asyncio.gather(*futures)
    assert positions == [positions[0], positions[1], positions[1], positions[0], positions[1]]
    assert await messages(bk) == [b"x", b"x"]


async def test_a_caller_that_is_cancelled_takes_nothing_from_another(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        await stream.append(b"first", producer="p", sequence=0)
        one, two = (stream.append_nowait(b"x", producer="p", sequence=1) for _ in range(2))
        one.cancel()
        assert (await two).entry == 1
    assert await messages(bk) == [b"first", b"x"]


async def test_nothing_overtakes_what_waits_for_the_numbers(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        numbered = stream.append_nowait(b"1", producer="p", sequence=0)
        plain = [stream.append_nowait(b"2"), stream.append_nowait(b"3")]
        await asyncio.gather(numbered, *plain)
    assert await messages(bk) == [b"1", b"2", b"3"]


async def test_numbered_appends_do_not_overtake_each_other_while_they_wait_for_room(cluster: SmallCluster) -> None:
    """A higher number that is stored first makes a lower one look like a repeat: nobody would store it."""
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=StreamSettings(max_pending_bytes=10)) as stream:
        await stream.append(b"0", producer="p", sequence=0)
        full = stream.append_nowait(b"full")
        appends = [stream.append(b"%d" % number, producer="p", sequence=number) for number in (1, 2, 3)]
        waiting = [asyncio.create_task(append) for append in appends]
        await asyncio.sleep(0)
        full.add_done_callback(lambda _: stream.append_nowait(b"full again"))  # as number 1 is woken
        assert EARLIEST not in await asyncio.gather(*waiting)
    assert await messages(bk) == [b"0", b"full", b"full again", b"1", b"2", b"3"]


async def test_it_holds_across_roll_overs_and_owners_that_close_or_die(cluster: SmallCluster) -> None:
    first, second = cluster.client(1), cluster.client(2)
    stream = await first.open_stream(NAME, settings=SMALL)
    positions = [await stream.append(b"%d" % number, producer="p", sequence=number) for number in range(10)]
    assert len({position.ledger for position in positions}) == 4
    assert [await stream.append(b"", producer="p", sequence=number) for number in range(10)] == positions
    await stream.close()
    stream = await second.open_stream(NAME, settings=SMALL)
    assert await stream.append(b"", producer="p", sequence=9) == EARLIEST, "saved at the close: where is not saved"
    positions.append(await stream.append(b"10", producer="p", sequence=10))
    stream.abort()
    stream = await first.open_stream(NAME, takeover=True, settings=SMALL)
    assert await stream.append(b"", producer="p", sequence=10) == positions[10], "it was read again"
    assert await stream.append(b"", producer="p", sequence=2) == EARLIEST
    await stream.close()
    assert await messages(first) == [b"%d" % number for number in range(11)]


async def test_numbers_that_a_broker_deleted_are_read_from_the_entries(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=SMALL) as stream:
        first = await stream.append(b"a", producer="p", sequence=7)
    await cluster.store.sync()
    catalog = bk.stream_context.catalog
    node = await catalog.read_cursor(NAME, "pulsar.dedup")
    await catalog.delete_cursor(NAME, "pulsar.dedup", node.version, noted=[])
    async with bk.open_stream(NAME, settings=SMALL) as stream:
        assert await stream.append(b"again", producer="p", sequence=7) == first
    assert "numbers read from entries" in cluster.kinds()
    assert await messages(bk) == [b"a"]


async def test_of_a_batch_what_is_stored_is_left_out(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        first = await stream.append_batch([b"5", b"6"], producer="p", sequence=5)
        second = await stream.append_batch([b"6", b"7", b"8"], producer="p", sequence=6)
        assert second[0] == first[1]
        assert [position.batch_index for position in second] == [1, 0, 1]
        assert await stream.append_batch([b"7", b"8"], producer="p", sequence=7) == second[1:]
    assert await messages(bk) == [b"5", b"6", b"7", b"8"]


async def test_producer_and_sequence_come_together(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME) as stream:
        for wrong in (
            {"producer": "p"},
            {"sequence": 1},
            {"producer": "p", "sequence": -1},
            {"producer": "", "sequence": 0},
        ):
            with pytest.raises(UsageError):
                await stream.append(b"x", **wrong)


async def test_a_number_that_was_refused_for_good_is_new_again(cluster: SmallCluster) -> None:
    """Nothing of it was sent: nothing is read, and the next try stores it."""
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        await stream.append(b"0", producer="p", sequence=0)
        with pytest.raises(UsageError, match="too long"):
            await stream.append(bytes(6 << 20), producer="p", sequence=1)
        assert (await stream.append(b"1", producer="p", sequence=1)).entry == 1
    assert await messages(bk) == [b"0", b"1"]


@pytest.mark.parametrize("compression", [None, "lz4"])
async def test_a_number_that_is_refused_while_it_waits_or_is_encoded_holds_up_no_other(
    cluster: SmallCluster, compression: str | None
) -> None:
    """The first waits for the numbers to be read; or each is compressed beside the loop before its length is known. A
    repeat of it is refused each time, so that who numbers on would wait for good."""
    bk, long = cluster.client(), Random(0).randbytes(6 << 20)
    async with bk.open_stream(NAME, settings=StreamSettings(compression=compression)) as stream:
        for number in (0, 2):
            with pytest.raises(UsageError, match="too long"):
                await stream.append(long, producer="p", sequence=number)
            await stream.append(b"%d" % number, producer="p", sequence=number + 1)
    assert await messages(bk) == [b"0", b"2"]


async def test_names_that_owners_give_themselves_are_no_producers(cluster: SmallCluster) -> None:
    """Each owner has its own, which nobody repeats: they would push out the others."""
    bk = cluster.client()
    stream = await bk.open_stream(NAME)
    await stream.append(b"plain")
    await stream.append(b"0", producer="p", sequence=0)
    stream.abort()  # so the next owner reads both
    async with cluster.client(2).open_stream(NAME, takeover=True) as second:
        await second.append(b"1", producer="p", sequence=1)
    state = (await bk.stream_context.catalog.read_cursor(NAME, "pulsar.dedup")).value.state
    assert state is not None and dict(state.properties) == {"p": 1}


async def test_a_number_is_stored_with_the_last_chunk_of_its_message(cluster: SmallCluster) -> None:
    """Whoever wrote chunks died between them, and repeats them all."""

    def chunk(number: int, index: int) -> bytes:
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=number,
            publish_time=1,
            uuid=f"p-{number}",
            num_chunks_from_msg=2,
            total_chunk_msg_size=2,
            chunk_id=index,
        ).SerializeToString()
        return len(metadata).to_bytes(4, "big") + metadata + b"%d" % index

    async with cluster.client().open_stream(NAME, settings=StreamSettings(entry_format="raw")) as raw:
        for number, index in [(5, 0), (5, 1), (6, 0)]:
            await raw.append(chunk(number, index))
        second = raw.last_confirmed._replace(entry=1)
    bk = cluster.client(2)
    async with bk.open_stream(NAME) as stream:
        assert await stream.append(b"five", producer="p", sequence=5) == second
        await stream.append(b"six", producer="p", sequence=6)
    assert await messages(bk) == [b"01", b"six"]


async def test_numbers_are_those_of_java(cluster: SmallCluster) -> None:
    most = (1 << 63) - 1
    async with cluster.client().open_stream(NAME) as stream:
        with pytest.raises(UsageError, match="sequence is"):
            await stream.append(b"x", producer="p", sequence=most + 1)
        with pytest.raises(UsageError, match="sequence is"):
            await stream.append_batch([b"x", b"y"], producer="p", sequence=most)
        with pytest.raises(UsageError, match="event_time"):
            await stream.append(b"x", event_time=most + 1)
        await stream.append_batch([b"x", b"y"], producer="p", sequence=most - 1)
        await stream.append(b"z", event_time=most)


async def test_nobody_opens_the_cursor_of_the_numbers(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME) as stream:
        await stream.append(b"0", producer="p", sequence=0)
        for durable in (True, False):
            with pytest.raises(UsageError, match="numbers of appends"):
                await bk.cursor(NAME, "pulsar.dedup", durable=durable)
    await bk.delete_cursor(NAME, "pulsar.dedup")
    async with bk.open_stream(NAME) as stream:
        assert (await stream.append(b"0", producer="p", sequence=0)).entry == 0
    assert await messages(bk) == [b"0"]


async def test_the_cursor_of_the_numbers_stays_while_the_stream_has_an_owner(cluster: SmallCluster) -> None:
    """An owner that found its numbers gone, as it was about to trim what had them, took that for another owner."""
    bk, other = cluster.client(), cluster.client()
    async with bk.open_stream(NAME, settings=replace(SMALL, retention_s=0)) as stream:
        for number in range(5):
            await stream.append(b"a", producer="p", sequence=number)
        with pytest.raises(StreamOwned):
            await other.delete_cursor(NAME, "pulsar.dedup")
        for number in range(5, 10):
            await stream.append(b"a", producer="p", sequence=number)
        await asyncio.sleep(1)
        await stream.trim()
        await stream.append(b"b", producer="p", sequence=10)
    await other.delete_cursor(NAME, "pulsar.dedup")
