"""What becomes of appends when there are several owners, or a repairer closes a ledger (Q19)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, REFUSE, StoreFaults, ledgers, notes, of_list, payloads, read_all
from tallystick.bookkeeper.stream import leases
from tallystick.bookkeeper.stream.owned_list import OwnedList
from tallystick.bookkeeper.stream.owner import TRIM_EVERY_S
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    StreamFenced,
)

pytestmark = pytest.mark.bookies(4)  # so that one that fails can be replaced


@pytest.mark.rule("Q19")
async def test_an_owner_that_was_paused_while_another_took_over_appends_nothing(cluster: SmallCluster) -> None:
    old = await cluster.client().open_stream(NAME, settings=RAW)
    await old.append(b"0")
    new = await cluster.client(2).open_stream(NAME, settings=RAW, takeover=True)
    with pytest.raises(StreamFenced) as fenced:
        await old.append(b"lost")
    assert fenced.value.ambiguous
    with pytest.raises(StreamFenced) as fenced:
        await old.append(b"lost, too")
    assert not fenced.value.ambiguous
    with pytest.raises(StreamFenced):
        await old.roll_over()
    with pytest.raises(StreamFenced):
        await old.terminate()
    await old.close()
    assert await new.append(b"1") == Position(1, 0)
    await new.close()
    assert await payloads(cluster) == [b"0", b"1"]


@pytest.mark.rule("Q19")
async def test_a_paused_owner_in_the_middle_of_a_roll_over_is_fenced_by_the_list(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    old = await bk.open_stream(NAME, settings=RAW)
    await old.append(b"0")
    faults.script = lambda changes: REFUSE if of_list(changes) else None
    rolling = asyncio.ensure_future(old.roll_over())
    await asyncio.sleep(1)
    assert await notes(cluster) == [1]
    async with cluster.client(2).open_stream(NAME, settings=RAW, takeover=True) as new:
        await new.append(b"1")
        faults.script = lambda changes: None
        with pytest.raises(StreamFenced):
            await rolling
    await old.close()
    assert await read_all(cluster) == [("0:0", b"0"), ("2:0", b"1")]
    assert await notes(cluster) == [] and await ledgers(cluster) == [0, 2], "what it made was deleted"


async def test_two_owners_that_take_over_from_each_other_lose_nothing(cluster: SmallCluster) -> None:
    expected = []
    streams = [await cluster.client().open_stream(NAME, settings=RAW)]
    for turn in range(6):
        expected.append(b"%d" % turn)
        await streams[-1].append(expected[-1])
        streams.append(await cluster.client(turn + 2).open_stream(NAME, settings=RAW, takeover=True))
        with pytest.raises(StreamFenced):
            await streams[-2].append(b"no")
    for stream in streams:
        await stream.close()
    assert await payloads(cluster) == expected


async def test_of_two_owners_that_open_at_one_time_one_is_refused(cluster: SmallCluster) -> None:
    opened = await asyncio.gather(
        *(cluster.client(n).open_stream(NAME, settings=RAW, takeover=True) for n in range(2, 6)), return_exceptions=True
    )
    streams = [one for one in opened if not isinstance(one, BaseException)]
    assert streams and all(isinstance(one, StreamFenced) for one in opened if isinstance(one, BaseException))
    outcomes = await asyncio.gather(*(one.append(b"x") for one in streams), return_exceptions=True)
    assert sum(isinstance(outcome, Position) for outcome in outcomes) == 1
    await asyncio.sleep(1)  # until the LAC is told
    assert await payloads(cluster) == [b"x"]


async def recovered_by_a_repairer(cluster: SmallCluster, ledger: int) -> None:
    await (await cluster.client(50).open_ledger(ledger, recover=True)).close()


async def test_a_ledger_that_a_repairer_closed_counts_as_closed_by_the_owner(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    await recovered_by_a_repairer(cluster, 0)
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 4)]
    assert await asyncio.gather(*futures) == [Position(1, n) for n in range(3)]
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(4)]
    assert "fenced stream looked at" in cluster.kinds()


async def test_entries_that_the_repairer_found_count_as_stored(cluster: SmallCluster) -> None:
    """They were on the bookies, and no answer came: sent again they would be there twice."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    for bookie in cluster.bookies.values():
        bookie.held = []
    futures = [stream.append_nowait(b"%d" % n) for n in range(3)]
    await asyncio.sleep(0.1)
    for bookie in cluster.bookies.values():
        bookie.held = None  # the answers are lost
    await recovered_by_a_repairer(cluster, 0)
    futures.append(stream.append_nowait(b"3"))
    positions = await asyncio.gather(*futures)
    assert positions == [Position(0, 0), Position(0, 1), Position(0, 2), Position(1, 0)]
    await stream.close()
    assert await payloads(cluster) == [b"0", b"1", b"2", b"3"]


async def test_who_closed_it_is_no_repairer_where_a_stored_entry_is_missing(cluster: SmallCluster) -> None:
    """An append was told that the last entry is stored: an end before it is nothing to go on from."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await asyncio.gather(*(stream.append(b"%d" % n) for n in range(3)))
    await recovered_by_a_repairer(cluster, 0)
    found = await cluster.driver.read_ledger(0)
    await cluster.driver.write_ledger(0, replace(found.value, last_entry=1, length=2), found.version)
    with pytest.raises(StreamFenced):
        await stream.append(b"3")
    assert await ledgers(cluster) == [0]


async def test_who_closed_it_is_no_repairer_where_another_has_the_lease(cluster: SmallCluster) -> None:
    """It opens the stream, and has not come to the list yet."""
    bk, other = cluster.client(), cluster.client(2)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    await other.stream_context.leases.take(bk.stream_context.catalog.paths.owner(NAME), takeover=True)
    await recovered_by_a_repairer(cluster, 0)
    with pytest.raises(StreamFenced):
        await stream.append(b"1")
    assert await ledgers(cluster) == [0]


async def test_who_closed_it_is_no_repairer_where_the_list_is_anothers(cluster: SmallCluster) -> None:
    """A Pulsar broker, which knows no leases."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    await recovered_by_a_repairer(cluster, 0)
    catalog = cluster.client(2).stream_context.catalog
    stored_list = await catalog.read(NAME, synced=True)
    await catalog.write(NAME, stored_list.value, stored_list.version)
    with pytest.raises(StreamFenced):
        await stream.append(b"1")
    assert await ledgers(cluster) == [0]


async def test_who_closed_it_before_what_was_acknowledged_is_not_believed(cluster: SmallCluster) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=RAW)
    for n in range(3):
        await stream.append(b"%d" % n)
    versioned = await bk.context.driver.read_ledger(0)
    await bk.context.driver.write_ledger(0, versioned.value.closed(1, 2), versioned.version)
    for bookie in cluster.bookies.values():
        bookie.fence(0)
    with pytest.raises(StreamFenced):
        await stream.append(b"3")


async def test_a_ledger_that_was_made_too_late_is_deleted_by_who_made_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    create, reached, goes_on = bk.context.driver.create_ledger, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any, **more: Any) -> Any:
        reached.set()
        await goes_on.wait()
        made = await create(*arguments, **more)
        stream._owner.lease.lost = None  # it did not hear of it yet
        return made

    monkeypatch.setattr(bk.context.driver, "create_ledger", slowly)
    rolling = asyncio.ensure_future(stream.roll_over())
    await reached.wait()
    async with cluster.client(2).open_stream(NAME, settings=RAW, takeover=True) as other:
        goes_on.set()
        with pytest.raises(StreamFenced):
            await rolling
        await bk.stream_context.deletions.done()
        assert await ledgers(cluster) == [0, 1] and await notes(cluster) == []
        await other.append(b"1")


async def test_that_is_believed_once_in_a_while_only(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await recovered_by_a_repairer(cluster, 0)
    assert await stream.append(b"0") == Position(1, 0)
    await recovered_by_a_repairer(cluster, 1)
    with pytest.raises(StreamFenced):
        await stream.append(b"1")
    await stream.close()


async def test_a_repairer_that_never_ends_is_waited_for_so_long(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    for bookie in cluster.bookies.values():
        bookie.fence(0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(StreamFenced):
        await stream.append(b"1")
    assert 9 < loop.time() - began < 15
    await stream.close()


async def test_owners_that_regained_their_leases_do_not_all_look_at_one_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "LOOKS_AT_ONCE", 2)
    bk, looks, under_way = cluster.client(), list[tuple[str, int]](), list[str]()
    names = [f"{NAME}-{number}" for number in range(6)]
    streams = [await bk.open_stream(name, settings=RAW) for name in names]

    async def is_unchanged(stored_list: OwnedList) -> bool:
        under_way.append(stored_list._stream)
        looks.append((stored_list._stream, len(under_way)))
        await asyncio.sleep(0.1)
        under_way.remove(stored_list._stream)
        return True

    monkeypatch.setattr(OwnedList, "is_unchanged", is_unchanged)
    for stream in streams:
        stream._owner._lease_regained()
    await asyncio.sleep(1)
    assert [name for name, _ in looks] == names and max(count for _, count in looks) == 2
    for stream in streams:
        await stream.close()


async def test_an_owner_whose_upkeep_finds_another_one_takes_no_more(cluster: SmallCluster) -> None:
    """It would append for hours, until its ledger is full, to a list that is another's by now."""
    bk = cluster.client()
    settings = StreamSettings(entry_format="raw", retention_s=TRIM_EVERY_S / 2)
    async with bk.open_stream(NAME, settings=settings) as stream:
        await stream.append(b"a")
        await stream.roll_over()
        await stream.append(b"b")
        catalog = bk.stream_context.catalog
        stored = await catalog.read(NAME)
        await catalog.write(NAME, replace(stored.value, properties={"written": "by another"}), stored.version)
        await asyncio.sleep(2 * TRIM_EVERY_S)
        with pytest.raises(StreamFenced):
            await stream.append(b"c")
