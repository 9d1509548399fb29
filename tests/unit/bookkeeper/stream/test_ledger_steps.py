"""What becomes of a ledger that was made and is not listed: its client lets go of it, and nobody lists it later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, REFUSE, StoreFaults, ledgers, notes, of_list, payloads, read_list
from tallystick.bookkeeper.metadata.store import Change, Update
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import MetadataError, MetadataUnavailable, StreamClosed, StreamFenced


def open_ledgers(bk: BookKeeper) -> list[int]:
    """The ledgers whose writers a client holds, to replace their bookies."""
    return list(bk._writers.open)


def refused(changes: Sequence[Change]) -> str | None:
    return REFUSE if of_list(changes) and isinstance(changes[0], Update) else None


async def test_a_list_that_cannot_be_written_leaves_no_open_writer(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    faults.script = refused
    for _ in range(3):
        with pytest.raises(MetadataUnavailable):
            await bk.open_stream(NAME, settings=RAW)
    assert open_ledgers(bk) == []
    faults.script = lambda changes: None
    async with bk.open_stream(NAME, settings=RAW) as stream:
        assert await stream.append(b"x") == Position(3, 0)
        assert open_ledgers(bk) == [3]
    assert open_ledgers(bk) == []


async def test_an_owner_that_was_slower_leaves_no_open_writer(cluster: SmallCluster) -> None:
    clients = [cluster.client(n) for n in range(2, 6)]
    opened = await asyncio.gather(
        *(bk.open_stream(NAME, settings=RAW, takeover=True) for bk in clients), return_exceptions=True
    )
    owners = [not isinstance(each, BaseException) for each in opened]
    assert [len(open_ledgers(bk)) for bk in clients] == [int(is_owner) for is_owner in owners]
    assert not all(owners)


async def test_a_ledger_with_too_low_an_id_leaves_no_open_writer(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        await stream.append(b"x")
    catalog = bk.stream_context.catalog
    stored = await catalog.read(NAME)
    listed = replace(stored.value, ledgers=(stored.value.ledgers[0]._replace(ledger=50),))
    await catalog.write(NAME, listed, stored.version)
    with pytest.raises(MetadataError, match="lower ids"):
        await bk.open_stream(NAME, settings=RAW)
    assert open_ledgers(bk) == []


async def test_a_handle_that_is_closed_before_its_next_ledger_is_listed_lets_go_of_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"x")
    faults.script = refused
    rolling = asyncio.ensure_future(stream.roll_over())
    await asyncio.sleep(1)
    assert open_ledgers(bk) == [1], "it is made, and not listed yet"
    with pytest.raises(MetadataUnavailable):
        await stream.close()
    await asyncio.gather(rolling, return_exceptions=True)
    assert open_ledgers(bk) == []


async def test_an_owner_that_is_fenced_before_its_next_ledger_is_listed_lets_go_of_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    faults = StoreFaults(bk, monkeypatch)
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"x")
    faults.script = refused
    rolling = asyncio.ensure_future(stream.roll_over())
    await asyncio.sleep(1)
    async with cluster.client(2).open_stream(NAME, settings=RAW, takeover=True) as other:
        faults.script = lambda changes: None
        with pytest.raises(StreamFenced):
            await rolling
        assert open_ledgers(bk) == []
        await other.append(b"y")
    assert await payloads(cluster) == [b"x", b"y"]


@pytest.mark.parametrize("call", ["create_ledger", "change"])
async def test_an_owner_that_is_aborted_lists_nothing_later(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Else who opens the stream next may find that its list was changed meanwhile."""
    bk = cluster.client()
    stream = await bk.open_stream(NAME, settings=RAW)
    await stream.append(b"x")
    target: Any = bk.context.driver if call == "create_ledger" else bk.context.driver.store
    do, reached, goes_on = getattr(target, call), asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any, **more: Any) -> Any:
        if call == "create_ledger" or (of_list(arguments) and not reached.is_set()):
            reached.set()
            await goes_on.wait()
            if call == "change":
                raise MetadataUnavailable("the metadata is away")
        return await do(*arguments, **more)

    monkeypatch.setattr(target, call, slowly)
    rolling = asyncio.ensure_future(stream.roll_over())
    await reached.wait()
    stream.abort()
    goes_on.set()
    with pytest.raises(StreamClosed):
        await rolling
    await asyncio.sleep(1)
    assert [each.ledger for each in (await read_list(cluster)).ledgers] == [0] and open_ledgers(bk) == []
    monkeypatch.undo()
    next_one = cluster.client(2)
    async with next_one.open_stream(NAME, settings=RAW) as other:
        assert await other.append(b"y") == Position(2, 0)
        await next_one.stream_context.deletions.done()
        assert await ledgers(cluster) == [0, 2] and await notes(cluster) == []
