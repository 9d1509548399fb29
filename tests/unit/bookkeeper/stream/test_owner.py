"""What becomes of appends when ledgers, bookies or the metadata fail (Q9, Q18)."""

from __future__ import annotations

import asyncio

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.streams import (
    LOSE,
    NAME,
    ON_ALL,
    RAW,
    REFUSE,
    StoreFaults,
    ledgers,
    notes,
    of_list,
    once,
    payloads,
    read_all,
)
from tallystick.bookkeeper.stream.append_flow import APPEND_COST_BYTES
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    MetadataUnavailable,
    NotEnoughBookies,
    StreamClosed,
    StreamFull,
    StreamTerminated,
    Unavailable,
    UsageError,
)

pytestmark = pytest.mark.bookies(4)  # so that one that fails can be replaced


@pytest.mark.rule("Q9", "Q18")
async def test_what_a_failed_ledger_does_not_have_goes_to_the_next_one_once(cluster: SmallCluster) -> None:
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    for bookie in cluster.bookies.values():
        bookie.held = []  # what arrives is stored, and nobody hears of it
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 5)]
    await asyncio.sleep(1.5)
    for bookie in cluster.bookies.values():
        bookie.release()
    positions = await asyncio.gather(*futures)
    assert positions == [Position(1, n) for n in range(4)]
    await stream.close()
    assert await read_all(cluster) == [("0:0", b"0"), *((f"1:{n}", b"%d" % (n + 1)) for n in range(4))]
    assert (await bk.ledger_metadata(0)).last_entry == 0


@pytest.mark.rule("Q9")
async def test_a_writer_without_enough_bookies_rolls_over_once_they_are_back(cluster: SmallCluster) -> None:
    bk = cluster.client(no_quorum_s=2.0)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    await cluster.down("b0", "b1", "b2", "b3")
    appended = asyncio.ensure_future(stream.append(b"1"))
    await asyncio.sleep(10)
    assert not appended.done()
    await cluster.up("b0", "b1", "b2", "b3")
    assert (await appended).ledger > 0
    await stream.close()
    assert await payloads(cluster) == [b"0", b"1"]


async def test_appends_wait_for_a_ledger_so_long_and_no_longer(cluster: SmallCluster) -> None:
    bk = cluster.client(no_quorum_s=2.0)
    settings = StreamSettings(entry_format="raw", max_pending_s=20.0)
    stream = await bk.open_stream(NAME, settings=settings)
    await cluster.down("b0", "b1", "b2", "b3")
    sent = stream.append_nowait(b"sent")
    await asyncio.sleep(5)
    waits = stream.append_nowait(b"waits")
    with pytest.raises(NotEnoughBookies) as failed:
        await sent
    assert not failed.value.ambiguous, "its ledger was closed without it"
    with pytest.raises(NotEnoughBookies):
        await waits
    await cluster.up("b0", "b1", "b2", "b3")
    assert await stream.append(b"later") == Position(1, 0)
    await stream.close()
    assert await payloads(cluster) == [b"later"]
    await bk.stream_context.deletions.done()
    assert await ledgers(cluster) == [1] and await notes(cluster) == [], "the empty one is deleted"


async def test_bookies_that_hang_fail_appends_in_time_and_cost_few_ledgers(cluster: SmallCluster) -> None:
    """Each next ledger can be made, and takes nothing: a ledger a second was made, for ever."""
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=StreamSettings(entry_format="raw", max_pending_s=20.0))
    await stream.append(b"0")
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    start = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable):
        await stream.append(b"1")
    assert 20 <= asyncio.get_running_loop().time() - start < 40
    assert len(await ledgers(cluster)) <= 3, "those without entries left the list"
    assert cluster.kinds().count("stream rolled over") < 14
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    await stream.append(b"2")
    await stream.close()
    assert await payloads(cluster) == [b"0", b"2"]


def silence(cluster: SmallCluster, count: int) -> None:
    """So many of the bookies stay connected and answer nothing."""
    for bookie in [*cluster.bookies.values()][:count]:
        bookie.misbehave = lambda request: HANG


@pytest.mark.bookies(3)  # no other can take the place of one
@pytest.mark.parametrize("silent", [1, 2, 3])
async def test_silent_bookies_answer_no_append_and_each_fails_in_time(cluster: SmallCluster, silent: int) -> None:
    bk = cluster.client()
    loop, settings = asyncio.get_running_loop(), StreamSettings(max_entries_per_ledger=20, max_pending_s=5.0)
    stream = await bk.open_stream(NAME, settings=settings)
    await stream.append(b"0")
    silence(cluster, silent)
    start = loop.time()
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 201)]
    trimmed = asyncio.ensure_future(stream.trim())
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert await trimmed == []
    assert loop.time() - start < 5.0 + 5.0 + 1.0, "as long as appends wait, and a bookie may take to answer"
    failures = [result for result in results if isinstance(result, BaseException)]
    assert len(failures) > 100
    for failure in failures:
        assert isinstance(failure, NotEnoughBookies) and not failure.ambiguous, "its ledger is closed without it"
        assert failure.fields["stream"] == NAME and failure.fields["missing"] and "append again" in str(failure)
    if silent > 1:  # else the two others have every third entry
        with pytest.raises(NotEnoughBookies):  # the next ledger has the same bookies
            await asyncio.wait_for(stream.append_batch([b"again", b"again"]), 11.0)
    await asyncio.wait_for(stream.close(), 1.0)
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    stored = [result for result in results if isinstance(result, Position)]
    assert [position for position, _ in await read_all(cluster)] == ["0:0", *[str(position) for position in stored]]


@pytest.mark.bookies(3)
async def test_a_stream_on_silent_bookies_is_closed_in_time(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=5.0))
    await stream.append(b"0")
    silence(cluster, 3)
    pending = stream.append_nowait(b"1")
    await asyncio.wait_for(stream.close(), 11.0)
    with pytest.raises((Unavailable, StreamClosed)) as failed:
        await pending
    assert not failed.value.ambiguous
    assert (await bk.ledger_metadata(0)).last_entry == 0


@pytest.mark.bookies(3)
async def test_a_stream_goes_on_when_silent_bookies_answer_in_time(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=StreamSettings(entry_format="raw", max_pending_s=20.0))
    await stream.append(b"0")
    silence(cluster, 3)
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 5)]
    await asyncio.sleep(15)
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    assert [position.entry for position in await asyncio.gather(*futures)] == [1, 2, 3, 4]
    await asyncio.sleep(30)
    await stream.append(b"5")
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(6)] and await ledgers(cluster) == [0]


async def test_slow_bookies_that_store_something_now_and_then_fail_nothing(cluster: SmallCluster) -> None:
    """The time begins anew with each entry that is stored."""
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_pending_s=1.0, **ON_ALL))
    await stream.append(b"0")
    for bookie in cluster.bookies.values():
        bookie.held = []
    futures = []
    for n in range(1, 9):
        futures.append(stream.append_nowait(b"%d" % n))
        await asyncio.sleep(1.5)
        assert not futures[-1].done()
        for bookie in cluster.bookies.values():
            for send in (bookie.held or [])[:-1]:
                send()
            bookie.held = (bookie.held or [])[-1:]
        await asyncio.sleep(0.5)
    for bookie in cluster.bookies.values():
        bookie.release()
    await asyncio.gather(*futures)
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(9)] and await ledgers(cluster) == [0]


async def test_what_a_failed_ledger_does_not_have_fails_when_the_stream_is_terminated(cluster: SmallCluster) -> None:
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    silence(cluster, 4)
    pending = stream.append_nowait(b"1")
    assert await stream.terminate() == Position(0, 0)
    with pytest.raises(StreamTerminated) as failed:
        await asyncio.wait_for(pending, 1.0)
    assert not failed.value.ambiguous
    await stream.close()


async def test_appends_wait_while_the_metadata_is_away_at_a_roll_over(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=2, **ON_ALL))
    await stream.append(b"0")
    faults.is_away = True
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 5)]
    await asyncio.sleep(30)
    assert [future.done() for future in futures] == [True, False, False, False]
    faults.is_away = False
    assert [str(position) for position in await asyncio.gather(*futures)] == ["0:1", "1:0", "1:1", "2:0"]
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(5)]


async def test_metadata_that_stays_away_fails_appends_and_the_stream_goes_on_later(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=StreamSettings(entry_format="raw", max_pending_s=10.0))
    faults.is_away = True
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: HANG
    sent = stream.append_nowait(b"sent")
    await asyncio.sleep(3)
    waits = stream.append_nowait(b"waits")
    with pytest.raises(MetadataUnavailable) as failed:
        await sent
    assert failed.value.ambiguous, "its ledger may get it"
    with pytest.raises(MetadataUnavailable) as failed:
        await waits
    assert not failed.value.ambiguous
    faults.is_away = False
    for bookie in cluster.bookies.values():
        bookie.misbehave = None
    assert await stream.append(b"later") == Position(1, 0)
    await stream.close()
    assert await payloads(cluster) == [b"later"]


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_lost_response_to_a_write_of_the_list_is_looked_for(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    writes: list[int] = []

    def script(changes: object) -> str | None:
        if of_list(changes):  # type: ignore[arg-type]
            writes.append(1)
            return LOSE if len(writes) == at else None
        return None

    faults.script = script
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    await stream.roll_over()
    await stream.append(b"1")
    await stream.close()
    assert len(writes) >= at and await read_all(cluster) == [("0:0", b"0"), ("1:0", b"1")]
    assert await notes(cluster) == []


async def test_a_write_of_the_list_that_was_not_made_is_made_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    faults.script = once(REFUSE, of_list)
    await stream.roll_over()
    await stream.append(b"1")
    await stream.close()
    assert await read_all(cluster) == [("0:0", b"0"), ("1:0", b"1")] and await ledgers(cluster) == [0, 1]


async def test_a_late_failure_of_an_older_ledger_does_nothing_to_the_newer(cluster: SmallCluster) -> None:
    bk = cluster.client(add_quorum_timeout_s=1.0, degraded_writes=False)
    stream = await bk.open_stream(NAME, settings=RAW)
    for bookie in cluster.bookies.values():
        bookie.held = []
    futures = [stream.append_nowait(b"0")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    futures.append(stream.append_nowait(b"1"))  # a batch of its own, that fails by itself
    await asyncio.sleep(1.5)
    for bookie in cluster.bookies.values():
        bookie.release()
    assert await asyncio.gather(*futures) == [Position(1, 0), Position(1, 1)]
    assert await stream.append(b"2") == Position(1, 2)
    await stream.close()
    assert await payloads(cluster) == [b"0", b"1", b"2"]


async def test_pending_bytes_are_bounded(cluster: SmallCluster) -> None:
    settings = StreamSettings(entry_format="raw", max_pending_bytes=100 + APPEND_COST_BYTES)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        futures = [stream.append_nowait(bytes(50)), stream.append_nowait(bytes(50))]
        with pytest.raises(StreamFull):
            stream.append_nowait(b"")
        await asyncio.gather(*(stream.append(bytes(50)) for _ in range(20)))
        await asyncio.gather(*futures)
    assert len(await payloads(cluster)) == 22


async def test_pending_appends_without_a_byte_are_bounded(cluster: SmallCluster) -> None:
    settings = StreamSettings(entry_format="raw", max_pending_bytes=10 * APPEND_COST_BYTES)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        futures = [stream.append_nowait(b"") for _ in range(10)]
        with pytest.raises(StreamFull):
            stream.append_nowait(b"")
        await asyncio.gather(*futures)


async def test_an_old_ledger_rolls_over_unless_it_is_empty(cluster: SmallCluster) -> None:
    settings = StreamSettings(entry_format="raw", max_ledger_age_s=100.0)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        await asyncio.sleep(300)
        assert await stream.append(b"0") == Position(0, 0)  # and with it the ledger is full
        assert await stream.append(b"1") == Position(1, 0)
        await asyncio.sleep(120)
        assert stream.state()["ledgers"][-1]["ledgerId"] == 2
        await asyncio.sleep(500)
        assert stream.state()["ledgers"][-1]["ledgerId"] == 2


async def test_the_state_counts_a_ledger_that_has_ended_and_is_not_listed_so(cluster: SmallCluster) -> None:
    """Until there are bookies for the next one."""
    bk = cluster.client(no_quorum_s=2.0)
    stream = await bk.open_stream(NAME, settings=RAW)
    for body in (b"12345", b"678"):
        await stream.append(body)
    await cluster.down("b0", "b1")
    rolling = asyncio.ensure_future(stream.roll_over())
    await asyncio.sleep(5)
    state = stream.state()
    assert (state["state"], state["numberOfEntries"], state["totalSize"]) == ("CreatingLedger", 2, 8)
    await cluster.up("b0", "b1")
    await rolling
    assert (stream.state()["numberOfEntries"], stream.state()["totalSize"]) == (2, 8)
    await stream.close()


@pytest.mark.parametrize("is_batch", [False, True])
async def test_who_waited_for_room_and_is_refused_lets_the_next_one_in(cluster: SmallCluster, is_batch: bool) -> None:
    """Nothing else is on its way that would wake it."""
    async with cluster.client().open_stream(NAME, settings=StreamSettings(max_pending_bytes=1000)) as stream:
        long = bytes(6 << 20)
        stored = stream.append_nowait(bytes(1000))
        refused = asyncio.ensure_future(stream.append_batch([long]) if is_batch else stream.append(long))
        waits = asyncio.ensure_future(stream.append(b"next"))
        with pytest.raises(UsageError, match="too long"):
            await refused
        async with asyncio.timeout(5):
            assert await waits > await stored
