"""Batches of very many messages: they are checked over several turns, when their entry has its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME
from support.workers import HeldWorker
from tallystick.bookkeeper.stream import encoding
from tallystick.bookkeeper.stream.encoding import CHECKED_AT_ONCE, EntryEncoder
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.side_thread import TURN_STEPS
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import StreamFenced, UsageError


async def open_one(cluster: SmallCluster, settings: StreamSettings) -> Stream:
    return await cluster._clients[0].open_stream(NAME, settings=settings)


async def stored(cluster: SmallCluster) -> list[bytes]:
    async with cluster.client(77).read_stream(NAME) as reader:
        return [message.data async for message in reader.read()]


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_a_batch_of_very_many_messages_is_encoded_late(cluster: SmallCluster, held: HeldWorker) -> None:
    """20,000 messages take 20 ms, compressed or not."""
    stream = await open_one(cluster, StreamSettings())
    appending = asyncio.create_task(stream.append_batch([OutMessage(b"%d" % n) for n in range(20_000)]))
    await turns()
    assert not appending.done() and len(held.given) == 1
    held.do_one()
    assert (await appending)[-1] == Position(0, 0, 19_999)
    await stream.close()


@pytest.mark.parametrize("numbers", [{}, {"producer": "p", "sequence": 0}], ids=["own", "numbered"])
async def test_very_many_messages_are_checked_over_several_turns(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, numbers: dict[str, Any]
) -> None:
    """83,000 short ones took 65 ms of one turn, and the list of their positions as long. None overtakes another."""
    looked_at = 0
    given = [b"%d" % n for n in range(20_000)]
    check = EntryEncoder.checked

    def checked(encoder: EntryEncoder, one: object) -> OutMessage:
        nonlocal looked_at
        looked_at += 1
        return check(encoder, one)

    monkeypatch.setattr(EntryEncoder, "checked", checked)
    stream = await cluster.client().open_stream(NAME, settings=StreamSettings())
    await stream.append(b"before", producer="q", sequence=0)
    looked_at, of_turns = 0, list[int]()
    appending = [asyncio.create_task(stream.append_batch(given, **numbers)) for _ in range(1 if numbers else 3)]
    await asyncio.sleep(0)
    behind = stream.append_nowait(b"behind")
    while sum(of_turns) < len(appending) * len(given):
        assert len(of_turns) < 1000
        of_turns.append(looked_at)
        looked_at = 0
        await asyncio.sleep(0)
    assert max(of_turns) <= TURN_STEPS * CHECKED_AT_ONCE
    for entry, batch in enumerate(appending, 1):
        assert await batch == [Position(0, entry, index) for index in range(len(given))]
    assert await behind == Position(0, 1 + len(appending))
    await stream.close()
    assert await stored(cluster) == [b"before", *given * len(appending), b"behind"]


async def test_what_is_no_message_is_found_late_and_nothing_else_fails(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=StreamSettings())
    batch: list[bytes | OutMessage] = [OutMessage(b"%d" % n, properties={"p": "v"}) for n in range(3000)]
    refused = asyncio.create_task(stream.append_batch([*batch, OutMessage(b"", key=5)]))  # type: ignore[arg-type]
    repeated = asyncio.create_task(stream.append_batch([*batch, OutMessage(b"", key=5)], producer="p", sequence=0))  # type: ignore[arg-type]
    for task in (refused, repeated):
        with pytest.raises(UsageError, match="key"):
            await task
    assert (await stream.append_batch(batch, producer="p", sequence=0))[-1] == Position(0, 0, 2999)
    await stream.close()


@pytest.mark.parametrize("are_messages", [False, True])
async def test_a_long_batch_whose_caller_is_cancelled_goes_on_with_its_data(
    cluster: SmallCluster, held: HeldWorker, are_messages: bool
) -> None:
    """Who is cancelled may use its buffers for something else."""
    stream = await open_one(cluster, StreamSettings())
    buffers = [bytearray(b"%d" % n) for n in range(20_000)]
    appending = asyncio.create_task(stream.append_batch(map(OutMessage, buffers) if are_messages else buffers))  # type: ignore[arg-type]  # users do
    await asyncio.sleep(0)
    appending.cancel()
    for buffer in buffers:
        buffer[:] = b"other"
    behind = stream.append_nowait(b"behind")
    await turns()
    held.do_one()
    assert await behind == Position(0, 1)
    await stream.close()
    assert await stored(cluster) == [*[b"%d" % n for n in range(20_000)], b"behind"]


@pytest.mark.parametrize("count", [1024, 1025, 4096, 4097])
async def test_messages_that_are_checked_in_parts_are_all_there_and_have_their_numbers(
    cluster: SmallCluster, count: int
) -> None:
    async with cluster.client().open_stream(NAME, settings=StreamSettings()) as stream:
        await stream.append_batch([b"%d" % n for n in range(count)])
        await stream.append(b"behind")
    async with cluster.client(77).read_stream(NAME) as reader:
        found = [message async for message in reader.read()]
    assert [message.data for message in found] == [*[b"%d" % n for n in range(count)], b"behind"]
    assert [message.sequence for message in found] == list(range(count + 1))


async def test_who_waits_for_room_goes_on_when_a_batch_is_refused_late(cluster: SmallCluster, held: HeldWorker) -> None:
    """Nothing else would wake it: nothing is on its way."""
    stream = await open_one(cluster, StreamSettings(max_pending_bytes=1000))
    batch: list[bytes | OutMessage] = [*[b""] * 20_000, OutMessage(b"", key=5)]  # type: ignore[arg-type]  # users do
    refused = asyncio.create_task(stream.append_batch(batch))
    waiting = asyncio.create_task(stream.append(b"waits"))
    await asyncio.sleep(0)
    assert stream._owner.flow.is_full
    with pytest.raises(UsageError, match="key"):
        await refused
    assert await waiting == Position(0, 0)
    await stream.close()


async def test_too_many_messages_are_refused_at_once(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MOST_FIELDS", 2000)
    async with cluster.client().open_stream(NAME, settings=StreamSettings()) as stream:
        assert len(await stream.append_batch([b""] * 2000)) == 2000
        monkeypatch.setattr(EntryEncoder, "checked", None)
        with pytest.raises(UsageError, match="2000 messages at most"):
            await stream.append_batch([b""] * 2001)


async def test_a_stream_that_is_taken_over_checks_no_more_messages(cluster: SmallCluster, held: HeldWorker) -> None:
    stream = await open_one(cluster, StreamSettings())
    appending = asyncio.create_task(stream.append_batch([OutMessage(b"", key="k")] * 20_000))
    await asyncio.sleep(0)
    stream._owner.flow.fail_all(StreamFenced(stream=NAME))
    with pytest.raises(StreamFenced):
        await appending
    await turns()
    assert not held.given and not stream._owner.flow and stream._owner.flow._held_bytes == 0
    assert await stream.append(b"goes on") == Position(0, 0)
    await stream.close()


async def test_what_very_many_messages_have_beside_their_data_counts(cluster: SmallCluster, held: HeldWorker) -> None:
    stream = await open_one(cluster, StreamSettings(backlog_quota_bytes=1 << 40))
    await stream.append(b"measured")
    await turns()
    flow = stream._owner.flow
    flow.allow(1 << 30)
    batch = [OutMessage(b"%d" % n, key="k" * 100, properties={"p": "v" * 100}) for n in range(5000)]
    size = sum(message.size for message in batch)
    appending = asyncio.create_task(stream.append_batch(batch))
    await turns()
    assert flow._late.bytes == size
    held.do_one()
    await appending
    assert flow._left == (1 << 30) - size and flow._held_bytes == 0
    await stream.close()
