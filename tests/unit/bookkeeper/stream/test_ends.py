"""How an owner ends: it closes its handle, aborts it, or ends the stream itself."""

from __future__ import annotations

import asyncio

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, ON_ALL, RAW, REFUSE, StoreFaults, ledgers, of_list, once, payloads, read_list
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.errors import (
    MetadataUnavailable,
    StreamClosed,
    StreamTerminated,
)

pytestmark = pytest.mark.bookies(4)  # so that one that fails can be replaced


async def test_what_is_appended_before_the_end_of_the_stream_is_stored(cluster: SmallCluster) -> None:
    """Pulsar's terminate that races a roll-over opened the stream again, and acknowledged entries beyond its end."""
    settings = StreamSettings(entry_format="raw", max_entries_per_ledger=2)
    stream = await cluster.client().open_stream(NAME, settings=settings)
    futures = [stream.append_nowait(b"%d" % n) for n in range(5)]
    rolling = asyncio.ensure_future(stream.roll_over())
    last = await stream.terminate()
    with pytest.raises(StreamTerminated):
        await stream.append(b"beyond")
    await asyncio.gather(rolling, return_exceptions=True)
    assert (await asyncio.gather(*futures))[-1] == last == await stream.terminate()
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(5)]
    info = await read_list(cluster)
    assert info.terminated == last
    for each in info.ledgers:
        assert (await cluster.client(7).ledger_metadata(each.ledger)).state is LedgerState.CLOSED


async def test_a_terminated_stream_is_opened_and_takes_nothing(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"0")
        last = await stream.terminate()
    async with cluster.client(2).open_stream(NAME, settings=RAW) as again:
        with pytest.raises(StreamTerminated):
            await again.append(b"1")
        with pytest.raises(StreamTerminated):
            await again.roll_over()
        assert await again.terminate() == last == again.last_confirmed == again.terminated
        assert again.state()["state"] == "Terminated"
        assert again.state()["ledgers"][0]["entries"] == 1
    assert await ledgers(cluster) == [0]


async def test_an_end_that_could_not_be_stored_is_stored_by_the_next_call(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    for fault in (REFUSE, LOSE):
        faults.script = once(fault, of_list)
        if fault == REFUSE:
            with pytest.raises(MetadataUnavailable):
                await stream.terminate()
    assert await stream.terminate() == Position(0, 0)
    await stream.close()
    assert (await read_list(cluster)).terminated == Position(0, 0)


async def test_a_closed_handle_gives_the_stream_to_the_next_at_once(cluster: SmallCluster) -> None:
    loop = asyncio.get_running_loop()
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    futures = [stream.append_nowait(b"%d" % n) for n in range(3)]
    began = loop.time()
    await asyncio.gather(stream.close(), stream.close())
    assert all(future.done() for future in futures)
    async with cluster.client(2).open_stream(NAME, settings=RAW):
        pass
    assert loop.time() - began < 0.05
    for call in (stream.append(b"x"), stream.roll_over(), stream.trim(), stream.terminate()):
        with pytest.raises(StreamClosed):
            await call


async def test_a_handle_can_be_closed_while_the_metadata_is_away(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=1, **ON_ALL))
    await stream.append(b"connected")
    await asyncio.sleep(0.1)  # the next ledger is open
    faults.is_away = True
    first, second = stream.append_nowait(b"0"), stream.append_nowait(b"1")
    await asyncio.sleep(8)  # attempts are seconds apart by now
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(MetadataUnavailable):
        await stream.close()
    assert loop.time() - began < 0.1 and await first == Position(1, 0)
    with pytest.raises(MetadataUnavailable):
        await second
    faults.is_away = False
    async with cluster.client(2).open_stream(NAME, settings=RAW) as again:
        assert again.last_confirmed == Position(1, 0)


async def test_no_bookie_takes_an_entry_of_a_stream_whose_client_is_closed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=RAW)
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    future = stream.append_nowait(b"0")
    await asyncio.sleep(0.1)
    await bk.close()
    with pytest.raises(StreamClosed) as closed:
        await future
    assert closed.value.ambiguous
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    async with cluster.client(2).open_stream(NAME, settings=RAW) as new:
        assert await new.append(b"1") == Position(1, 0)


async def test_a_handle_that_was_aborted_leaves_the_stream_to_the_next(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    future = stream.append_nowait(b"1")
    stream.abort()
    with pytest.raises(StreamClosed):
        await future
    with pytest.raises(StreamClosed):
        await stream.append(b"2")
    async with bk.open_stream(NAME, settings=RAW) as again:
        assert again.last_confirmed == Position(0, 0)
    await stream.close()
    assert "closed" in repr(stream)
