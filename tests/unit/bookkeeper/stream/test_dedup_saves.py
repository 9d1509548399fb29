"""When the numbers of producers are saved, and up to where: not beyond what is in doubt, nor behind what is deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import StoreFaults
from tallystick.bookkeeper.ledger.read import Entry
from tallystick.bookkeeper.stream import numbers
from tallystick.bookkeeper.stream.append_flow import AppendFlow
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.cursor_store import CursorStore
from tallystick.bookkeeper.stream.dedup_core import DedupCore
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.bookkeeper.wire.stream_values import EARLIEST
from tallystick.errors import MetadataUnavailable, UsageError

NAME = "t/n/persistent/topic"
SMALL = StreamSettings(ensemble=3, max_entries_per_ledger=3)


async def messages(bk: BookKeeper, name: str = NAME) -> list[bytes]:
    async with bk.read_stream(name) as reader:
        return [bytes(message.data) async for message in reader.read()]


def save_when_released(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Cursors and numbers are not saved before this is set."""
    is_released, save = asyncio.Event(), CursorStore.save

    async def save_late(*arguments: Any) -> None:
        await is_released.wait()
        await save(*arguments)

    monkeypatch.setattr(CursorStore, "save", save_late)
    return is_released


async def test_numbers_are_saved_now_and_then(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bk = cluster.client(1, StreamClientSettings(dedup_interval_entries=4))
    stream = await bk.open_stream(NAME)
    for number in range(9):
        await stream.append(b"x", producer="p", sequence=number)
    await asyncio.sleep(1)
    node = (await bk.stream_context.catalog.read_cursor(NAME, "pulsar.dedup")).value
    assert node.ledger >= 0, "a cursor ledger has them"
    stream.abort()
    read: list[int] = []
    take_up = numbers._take_up

    def seen(core: DedupCore, entry: Entry) -> None:
        read.append(entry.id)
        take_up(core, entry)

    monkeypatch.setattr(numbers, "_take_up", seen)
    stream = await cluster.client(2).open_stream(NAME, takeover=True)
    assert await stream.append(b"again", producer="p", sequence=8) != EARLIEST
    assert 0 < len(read) < 9, "what came behind the last save alone"
    await stream.close()


async def test_numbers_whose_position_was_trimmed_are_read_from_the_first_that_is_left(cluster: SmallCluster) -> None:
    keep_nothing = StreamSettings(max_entries_per_ledger=2, retention_s=0, retention_bytes=0)
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=keep_nothing) as stream:
        await stream.append(b"0", producer="p", sequence=0)  # nothing but this is saved at the close
    catalog = bk.stream_context.catalog
    node = await catalog.read_cursor(NAME, "pulsar.dedup")
    stream = await bk.open_stream(NAME, settings=keep_nothing)
    for number in range(1, 9):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await stream.trim()
    await stream.close()
    saved = (await catalog.read_cursor(NAME, "pulsar.dedup")).version
    await catalog.write_cursor(NAME, "pulsar.dedup", node.value, saved)
    async with bk.open_stream(NAME, settings=keep_nothing) as stream:
        await stream.append(b"9", producer="p", sequence=9)
        assert await stream.append(b"again", producer="p", sequence=9) == stream.last_confirmed


@pytest.mark.parametrize("is_read_first", [False, True])
async def test_numbers_are_saved_before_the_entries_that_have_them_are_deleted(
    cluster: SmallCluster, is_read_first: bool
) -> None:
    """By the owner that appended them, or by the next, who numbers nothing itself."""
    keep_nothing = StreamSettings(max_entries_per_ledger=2, retention_s=0, retention_bytes=0)
    stream = await cluster.client().open_stream(NAME, settings=SMALL if is_read_first else keep_nothing)
    for number in range(6):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await asyncio.sleep(1)
    stream.abort()
    if is_read_first:
        async with cluster.client(2).open_stream(NAME, takeover=True, settings=keep_nothing) as second:
            await second.trim()
    third = await cluster.client(3).open_stream(NAME, takeover=True, settings=keep_nothing)
    for number in range(6):
        await third.append(b"again", producer="p", sequence=number)
    await third.close()
    assert b"again" not in await messages(cluster.client(4))


@pytest.mark.parametrize("is_during_a_save", [False, True])
async def test_the_number_of_the_last_entry_that_is_deleted_is_saved(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, is_during_a_save: bool
) -> None:
    """Those before it were saved already, or are saved just then."""
    is_released = save_when_released(monkeypatch)
    keep_nothing = StreamSettings(max_entries_per_ledger=3, retention_s=0, retention_bytes=0)
    saving_two = StreamClientSettings(dedup_interval_entries=2)
    stream = await cluster.client(1, saving_two).open_stream(NAME, settings=keep_nothing)
    for number in range(3):
        if number == 2 and not is_during_a_save:
            is_released.set()
            await asyncio.sleep(1)
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await asyncio.sleep(1)
    is_released.set()
    await asyncio.sleep(1)
    assert len((await cluster.client(5).stream_context.catalog.read(NAME)).value.ledgers) == 1, "it was trimmed"
    stream.abort()
    second = await cluster.client(2).open_stream(NAME, takeover=True, settings=keep_nothing)
    assert await second.append(b"again", producer="p", sequence=2) == EARLIEST
    await second.close()


async def fail_in_doubt(cluster: SmallCluster, stream: Stream, faults: StoreFaults, *, number: int) -> None:
    """An append fails while its ledger cannot be closed; then somebody else closes that, with the append."""
    faults.is_away = True
    for bookie in cluster.bookies.values():
        bookie.held = []
    with pytest.raises(MetadataUnavailable):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    faults.is_away = False
    for bookie in cluster.bookies.values():
        bookie.held = None
    await (await cluster.client(50).open_ledger(stream.last_confirmed.ledger, recover=True)).close()


async def test_trimming_leaves_an_append_in_doubt(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what is in its ledger before that is closed: trimming must not take its number for read."""
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=10.0, retention_s=5))
    await stream.append(b"0", producer="p", sequence=0)
    await stream.roll_over()
    await stream.append(b"1", producer="p", sequence=1)
    await fail_in_doubt(cluster, stream, faults, number=2)
    assert len(await stream.trim()) == 1
    await stream.append(b"2", producer="p", sequence=2)
    await stream.close()
    assert await messages(bk) == [b"1", b"2"]


async def test_numbers_are_not_saved_as_read_beyond_an_append_in_doubt(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save was under way when it failed, and the stream went on with appends that have no numbers."""
    is_released = save_when_released(monkeypatch)
    saving_two = StreamClientSettings(dedup_interval_entries=2)
    bk = cluster.client(1, saving_two, add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=10.0))
    for number in range(4):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await fail_in_doubt(cluster, stream, faults, number=4)
    await stream.append(b"plain")
    is_released.set()
    await asyncio.sleep(1)
    stream.abort()
    async with cluster.client(2).open_stream(NAME, takeover=True) as again:
        await again.append(b"4", producer="p", sequence=4)
    assert await messages(bk) == [b"0", b"1", b"2", b"3", b"4", b"plain"]


async def test_closing_does_not_save_numbers_as_read_beyond_an_append_in_doubt(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=10.0))
    await stream.append(b"0", producer="p", sequence=0)
    await fail_in_doubt(cluster, stream, faults, number=1)
    await stream.close()
    async with cluster.client(2).open_stream(NAME) as again:
        await again.append(b"1", producer="p", sequence=1)
    assert await messages(bk) == [b"0", b"1"]


async def test_the_numbers_of_all_that_counts_as_saved_are_saved(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save begins when an append is confirmed, and before that is told."""
    bk = cluster.client()
    stream = await bk.open_stream(NAME)
    await stream.append(b"0", producer="p", sequence=0)
    numbers, saving = stream._dedup, list[asyncio.Task[None]]()
    assert numbers is not None
    flow_class, stored = type(stream._owner.flow), type(stream._owner.flow)._stored

    def save_and_store(flow: AppendFlow, count: int) -> None:
        saving.append(asyncio.get_running_loop().create_task(numbers._save_now()))
        stored(flow, count)

    monkeypatch.setattr(flow_class, "_stored", save_and_store)
    await stream.append(b"1", producer="p", sequence=1)
    await asyncio.gather(*saving)
    monkeypatch.setattr(flow_class, "_stored", stored)
    stream.abort()
    async with cluster.client(2).open_stream(NAME, takeover=True) as again:
        await again.append(b"1", producer="p", sequence=1)
    assert await messages(bk) == [b"0", b"1"]


async def test_the_numbers_of_producers_with_very_long_names_hold_nothing_up(cluster: SmallCluster) -> None:
    """Nothing could be trimmed any more, as they were longer than an entry, and with the node that had them as the
    owner closed nobody could number appends again."""
    settings = replace(SMALL, max_entries_per_ledger=300, retention_s=0, retention_bytes=0)
    bk = cluster.client(1, StreamClientSettings(dedup_interval_entries=10_000))
    raw = await bk.open_stream(NAME, settings=replace(settings, entry_format="raw"))
    for number in range(6):  # as a broker of Pulsar stores them
        await raw.append(
            encode_entry([OutMessage(b"x")], producer=f"{number}" * 1_000_000, sequence=0, publish_time_ms=1)
        )
    await raw.close()
    async with bk.open_stream(NAME, settings=settings) as stream:
        with pytest.raises(UsageError, match="1024 characters at most"):
            await stream.append(b"x", producer="p" * 1025, sequence=0)
        for number in range(900):
            await stream.append(b"x", producer=f"{number:01024}", sequence=0)
        await asyncio.sleep(1)
        await stream.trim()
        assert (await stream.append(b"y", producer=f"{899:01024}", sequence=0)).entry >= 0
    node = await bk.stream_context.catalog.store.get(bk.stream_context.catalog.paths.cursor(NAME, "pulsar.dedup"))
    assert node is not None and 500_000 < len(node.data) < 1_000_000
    async with bk.open_stream(NAME, settings=settings) as stream:
        repeated = await stream.append(b"y", producer=f"{899:01024}", sequence=0)
        assert repeated == EARLIEST, "it is stored, and nobody knows where"
        assert (await stream.append(b"y", producer="new", sequence=0)).entry >= 0
    assert "numbers not saved" not in cluster.kinds()
