"""The handle of an owner: append, roll over, close, open again, take over."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from itertools import pairwise

import pytest

from support.pulsar_entries import decode_entry
from support.small_cluster import SmallCluster
from support.streams import NAME, RAW, ledgers, notes, payloads, read_all
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.stream import client
from tallystick.bookkeeper.stream.client import BookKeeper, connect
from tallystick.bookkeeper.stream.cursors import ENDED_A_TURN
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import MetadataError, StreamClosed, StreamFenced, StreamOwned, UsageError


async def test_append_roll_over_close_and_open_again(cluster: SmallCluster) -> None:
    bk = cluster.client()
    async with bk.open_stream(NAME, settings=RAW) as stream:
        assert await stream.append(b"a") == Position(0, 0)
        assert await stream.append(b"b") == Position(0, 1)
        await stream.roll_over()
        await stream.roll_over()
        assert await stream.append(b"c") == Position(1, 0)
        assert stream.last_confirmed == Position(1, 0)
    async with cluster.client(2).open_stream(NAME, settings=RAW) as again:
        assert again.last_confirmed == Position(1, 0)
        assert await again.append(b"d") == Position(2, 0)
    with pytest.raises(StreamClosed):
        await again.append(b"e")
    assert await read_all(cluster) == [("0:0", b"a"), ("0:1", b"b"), ("1:0", b"c"), ("2:0", b"d")]


async def test_an_owner_that_lives_keeps_the_stream_unless_it_is_taken_over(cluster: SmallCluster) -> None:
    first = await cluster.client().open_stream(NAME, settings=RAW)
    await first.append(b"a")
    other = cluster.client(2)
    with pytest.raises(StreamOwned) as owned:
        await other.open_stream(NAME)
    assert owned.value.owner == first.owner and owned.value.since_ms is not None
    second = await other.open_stream(NAME, takeover=True, settings=RAW)
    with pytest.raises(StreamFenced):
        await first.append(b"lost")
    assert await second.append(b"b") == Position(1, 0)
    await first.close()
    await second.close()
    assert await read_all(cluster) == [("0:0", b"a"), ("1:0", b"b")]


async def test_full_ledgers_roll_over_and_order_is_kept(cluster: SmallCluster) -> None:
    settings = StreamSettings(entry_format="raw", max_entries_per_ledger=10)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        futures = [stream.append_nowait(b"%d" % n) for n in range(95)]
        positions = await asyncio.gather(*futures)
    assert positions == [Position(n // 10, n % 10) for n in range(95)]
    assert [data for _, data in await read_all(cluster)] == [b"%d" % n for n in range(95)]


async def test_two_roll_overs_at_once_make_one_ledger(cluster: SmallCluster) -> None:
    """Pulsar made two, and one of them left the list with what was appended to it."""
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    await stream.append(b"0")
    rolling = [asyncio.create_task(stream.roll_over()) for _ in range(3)]
    await asyncio.sleep(0)  # all were asked for
    futures = [stream.append_nowait(b"%d" % n) for n in range(1, 5)]
    await asyncio.gather(*rolling)
    assert await asyncio.gather(*futures) == [Position(1, n) for n in range(4)]
    await stream.close()
    assert await payloads(cluster) == [b"%d" % n for n in range(5)]
    assert await ledgers(cluster) == [0, 1] and await notes(cluster) == []


async def test_what_was_just_appended_is_of_the_ledger_that_is_closed(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        future = stream.append_nowait(b"a")
        await stream.roll_over()
        assert future.result() == Position(0, 0) and await stream.append(b"b") == Position(1, 0)


async def test_messages_as_pulsar_writes_them(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME) as stream:
        assert await stream.append(b"a", key="k", event_time=7, properties={"x": "y"}) == Position(0, 0)
        batch: list[bytes | bytearray | OutMessage] = [b"b", OutMessage(b"c", key=b"k2"), bytearray(b"d")]
        assert await stream.append_batch(batch, producer="p", sequence=5) == [Position(0, 1, n) for n in range(3)]
        assert await stream.append_batch([b"e"]) == [Position(0, 2)] and await stream.append_batch([]) == []
        with pytest.raises(UsageError):
            await stream.append(b"f", producer="p")
        with pytest.raises(UsageError, match=r"give text\.encode\(\)"):
            await stream.append_batch([OutMessage("f")])  # type: ignore[arg-type]
        assert stream.state()["lastConfirmedEntry"] == "0:2"
    messages = [
        message
        for position, data in await read_all(cluster)
        for message in decode_entry(data, position=Position.parse(position), max_bytes=1 << 20)
    ]
    assert [message.data for message in messages] == [b"a", b"b", b"c", b"d", b"e"]
    assert (messages[0].key, messages[0].event_time_ms, dict(messages[0].properties)) == ("k", 7, {"x": "y"})
    assert [(each.producer, each.sequence) for each in messages[1:4]] == [("p", 5), ("p", 6), ("p", 7)]
    assert messages[2].key == b"k2" and messages[4].producer.startswith("tallystick-")


async def test_a_raw_stream_has_no_messages(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        for call in (stream.append(b"a", key="k"), stream.append_batch([b"a"])):
            with pytest.raises(UsageError):
                await call
        with pytest.raises(UsageError, match="too long"):
            await stream.append(bytes(6_000_000))
        assert await stream.append(b"a") == Position(0, 0)


async def test_the_state_of_a_stream(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=RAW) as stream:
        empty = stream.state()
        assert (empty["lastConfirmedEntry"], empty["numberOfEntries"]) == ("0:-1", 0)
        await stream.append(b"abc")
        await stream.roll_over()
        future = stream.append_nowait(b"de")
        assert stream.state()["pendingAddEntriesCount"] == 1
        await future
        state = stream.state()
        names = "numberOfEntries", "totalSize", "currentLedgerEntries", "currentLedgerSize", "entriesAddedCounter"
        assert [state[name] for name in names] == [2, 5, 1, 2, 2] and state["state"] == "LedgerOpened"
        assert [(each["ledgerId"], each["entries"], each["size"]) for each in state["ledgers"]] == [
            (0, 1, 3),
            (1, 0, 0),
        ]


async def test_a_standby_waits_for_the_owner_to_go(cluster: SmallCluster) -> None:
    stream = await cluster.client().open_stream(NAME, settings=RAW)
    other = cluster.client(2)
    with pytest.raises(StreamOwned):
        await other.open_stream(NAME, settings=RAW, wait_s=1.0)

    async def standby() -> Position:
        async with other.open_stream(NAME, settings=RAW, wait_s=60.0) as mine:
            return await mine.append(b"b")

    waiting = asyncio.ensure_future(standby())
    await asyncio.sleep(5)
    await stream.append(b"a")
    assert not waiting.done()
    await stream.close()
    assert await waiting == Position(1, 0)


async def test_the_state_says_when_the_newest_ledger_was_made(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME) as stream:
        before = stream.state()["lastLedgerCreatedTimestamp"]
        await stream.append(b"x")
        await asyncio.sleep(60)
        assert stream.state()["lastLedgerCreatedTimestamp"] == before
        await stream.roll_over()
        assert stream.state()["lastLedgerCreatedTimestamp"] > before


async def most_ended_in_a_turn(bk: BookKeeper, handles: Sized) -> int:
    """Close a client that has these handles."""
    left = [len(handles)]

    async def look() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            left.append(len(handles))

    looking = asyncio.create_task(look())
    await bk.close()
    await looking
    assert left[-1] == 0
    return max(before - after for before, after in pairwise(left))


async def test_a_client_that_is_closed_ends_some_of_its_streams_in_a_turn(cluster: SmallCluster) -> None:
    """10,000 at once were a fifth of a second."""
    bk = cluster.client()
    for number in range(2 * ENDED_A_TURN + 10):
        await bk.open_stream(f"tenant/ns/persistent/{number}", settings=RAW)
    assert await most_ended_in_a_turn(bk, bk._open_streams) <= ENDED_A_TURN


async def test_a_client_that_is_closed_ends_some_of_its_cursors_in_a_turn(cluster: SmallCluster) -> None:
    """3,000 at once were 130 ms."""
    bk = cluster.client()
    await bk.open_stream(NAME, settings=RAW)
    for number in range(2 * ENDED_A_TURN + 10):
        await bk.cursor(NAME, f"c{number}")
    assert await most_ended_in_a_turn(bk, bk._cursors._open_cursors) <= ENDED_A_TURN


async def test_who_finds_no_cluster_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, calls = await open_driver("memory://nothing-here"), list[str]()
    close = driver.close

    async def closed() -> None:
        calls.append("close")
        await close()

    async def opened(uri: str) -> MetadataDriver:
        return driver

    monkeypatch.setattr(driver, "close", closed)
    monkeypatch.setattr(client, "open_driver", opened)
    with pytest.raises(MetadataError):
        await connect("memory://nothing-here")
    assert calls == ["close"]
