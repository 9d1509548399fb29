"""What readers do in one turn of the loop, whatever the messages of a batch are like."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry, readers_of
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.stream.reader import StreamReaders
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.turn_work import MOST_WORK, TurnWork
from tallystick.bookkeeper.wire import pulsar_messages
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.stream_values import Position

HOW = [None, Compression.ZLIB]
LONG, COUNT = 256 << 10, 100  # bytes of a message, and messages
PIECES = COUNT * (LONG >> 14)


@pytest.fixture
async def readers(cluster: SmallCluster) -> AsyncIterator[StreamReaders]:
    made = readers_of(cluster.client(2))
    yield made
    await made.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Has one more for each time that a reader gave others a turn."""
    waited, wait = list[None](), TurnWork.wait

    async def counted(turn: TurnWork) -> None:
        waited.append(None)
        await wait(turn)

    monkeypatch.setattr(TurnWork, "wait", counted)
    return waited


async def test_others_have_turns_while_long_messages_of_a_batch_are_copied(
    cluster: SmallCluster, readers: StreamReaders, waits: list[None]
) -> None:
    owner = ListedStream(cluster.client())
    await owner.create([pulsar_entry(*[bytes(LONG)] * COUNT, compression=Compression.ZLIB)])
    reader = await readers.open(NAME)
    assert [len(message.data) async for message in reader.read()] == [LONG] * COUNT
    assert len(waits) >= PIECES // MOST_WORK - 1


@pytest.mark.parametrize("how", HOW)
async def test_others_have_turns_while_messages_are_decoded_that_nobody_wants(
    cluster: SmallCluster,
    readers: StreamReaders,
    waits: list[None],
    monkeypatch: pytest.MonkeyPatch,
    how: Compression | None,
) -> None:
    monkeypatch.setattr(pulsar_messages, "STEP_FIELDS", 10)
    owner = ListedStream(cluster.client())
    long_enough = [b"x" * 3_000] * 100
    await owner.create([pulsar_entry(*long_enough, compression=how, time_ms=1_000)])
    ledger = owner.info.ledgers[0].ledger
    reader = await readers.open(NAME)
    assert [message async for message in reader.read(Position(ledger, 0, 99))]
    assert len(waits) >= 9
    waits.clear()
    monkeypatch.setattr("tallystick.bookkeeper.stream.reading.PART_WORK", 10)
    monkeypatch.setattr("tallystick.bookkeeper.stream.turn_work.MOST_WORK", 10)
    assert not [message async for message in reader.read(start_time=2_000)]
    assert [message async for message in reader.read(start_time=1_000)]
    assert len(waits) >= 9


async def test_others_have_turns_while_a_cursor_decodes_what_is_long_or_not_wanted(
    cluster: SmallCluster, waits: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client(0)
    monkeypatch.setattr(pulsar_messages, "STEP_FIELDS", 10)
    async with bk.open_stream(NAME, settings=StreamSettings(compression="zlib")) as stream:
        positions = await stream.append_batch([b"x" * 3_000] * 100)
        await stream.append_batch([bytes(LONG)] * COUNT)
        async with cluster.client(1).cursor(NAME, "billing", durable=False) as cursor:
            await cursor.seek(position=positions[-1])
            assert [message.position for message in await cursor.read(1)] == [positions[-1]]
            assert len(waits) >= 9
            waits.clear()
            assert sum([len(await cursor.read(10, max_bytes=1 << 30)) for _ in range(COUNT // 10)]) == COUNT
            assert len(waits) >= PIECES // MOST_WORK - 1
