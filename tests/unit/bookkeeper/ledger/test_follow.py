"""Following an open ledger by long poll (facts 5.10, 9.4-67, 9.4-71)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.follow import WAIT_S
from tallystick.bookkeeper.ledger.poll_plan import MAX_PAUSE_S
from tallystick.bookkeeper.ledger.reader import LedgerReader
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import ReadResponse, encode_response
from tallystick.errors import UsageError


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(5)
    yield made
    await made.close()


class Following:
    """What a follower has got, and when."""

    def __init__(self, reader: LedgerReader, first: int = 0) -> None:
        self.entries: list[int] = []
        self.data: list[bytes] = []
        self.at: dict[int, float] = {}
        self._entries = reader.follow(first)
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        async for entry in self._entries:
            self.entries.append(entry.id)
            self.data.append(entry.data)
            self.at[entry.id] = asyncio.get_running_loop().time()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.mark.parametrize("wire", ["auto", "v3"])
@pytest.mark.parametrize(("ensemble", "write_quorum"), [(3, 3), (3, 2), (5, 2)])
async def test_an_idle_ledgers_last_entry_comes_soon_and_a_busy_ones_at_once(
    cluster: SmallCluster, wire: str, ensemble: int, write_quorum: int
) -> None:
    writer = await cluster.client(1, wire=wire).create_ledger(ensemble, write_quorum=write_quorum)
    loop = asyncio.get_running_loop()
    async with await cluster.client(2, wire=wire).open_ledger(writer.id) as reader:
        following, appended = Following(reader), {}
        for _ in range(20):
            entry = await writer.append(b"x")
            appended[entry] = loop.time()
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        for _ in range(5):  # each of them a last one
            entry = await writer.append(b"x")
            appended[entry] = loop.time()
            await asyncio.sleep(0.6)
        assert following.entries == list(range(25))
        late = [following.at[entry] - at for entry, at in appended.items()]
        assert max(late[2:18]) < 0.06  # the entry behind tells of it
        assert max(late) < 0.3 + 0.2
        await writer.close()
        await following.task


async def test_a_new_ledger_is_followed_from_its_first_entry(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        await asyncio.sleep(3)
        await writer.append(b"x")
        await asyncio.sleep(0.5)
        assert following.entries == [0]
        await following.stop()


@pytest.mark.parametrize("kind", ["old bookies", "v2"])
async def test_without_version_3_it_asks_again_and_again(cluster: SmallCluster, kind: str) -> None:
    writer = await cluster.client(1, wire="v2").create_ledger(3)
    if kind == "old bookies":
        for bookie in cluster.bookies.values():
            bookie.speaks_v3 = False
    async with await cluster.client(2, wire="v2" if kind == "v2" else "auto").open_ledger(writer.id) as reader:
        following = Following(reader)
        for _ in range(10):
            await writer.append(b"x")
            await asyncio.sleep(0.5)
        assert following.entries == list(range(9))  # nobody tells of the last one
        await writer.close()
        await following.task
        assert following.entries == list(range(10))
    if kind == "v2":
        assert not any(bookie.requests_v3 for bookie in cluster.bookies.values())


async def test_it_follows_onto_another_ensemble_and_past_bookies_that_died(cluster: SmallCluster) -> None:
    """Facts 9.4-71: the old bookies are gone one after another."""
    writer = await cluster.client().create_ledger(3, write_quorum=3)
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        for count in range(20):
            await writer.append(b"%d" % count)
            if count in (5, 12):
                await cluster.down(writer.metadata.ensemble[count % 3])
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert following.entries == list(range(20))
        assert len(writer.metadata.fragments) == 3
        await writer.close()
        await following.task


async def test_a_bookie_that_says_nothing_does_not_keep_the_others_entries(cluster: SmallCluster) -> None:
    writer = await cluster.client(1).create_ledger(3, write_quorum=3)
    await writer.append(b"x")
    asked_first = writer.metadata.ensemble[writer.id % 3]

    def silent(request: v3.Request) -> bytes | None:
        polls = isinstance(request, v3.ReadRequest) and request.is_long_poll
        return None if polls else cluster.bookies[asked_first].USUAL

    cluster.bookies[asked_first].script_v3 = silent
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        for _ in range(10):
            await writer.append(b"x")
            await asyncio.sleep(0.5)
        assert following.entries == list(range(11))
        polls = [one for one in cluster.bookies[asked_first].requests_v3 if isinstance(one, v3.ReadRequest)]
        assert len(polls) == 1  # one at a time
        await following.stop()


async def test_who_waits_for_minutes_asks_once_a_wait_and_keeps_its_connections(cluster: SmallCluster) -> None:
    writer = await cluster.client(1).create_ledger(3, write_quorum=3)
    await writer.append(b"x")
    async with await cluster.client(2, read_timeout_s=1.0).open_ledger(writer.id) as reader:
        following = Following(reader)
        await asyncio.sleep(10 * WAIT_S)
        for bookie in cluster.bookies.values():
            assert len([one for one in bookie.requests_v3 if isinstance(one, v3.ReadRequest)]) <= 12
        assert not {"bookie connection ended", "bookie not reached"} & set(cluster.kinds())
        await writer.append(b"y")
        await asyncio.sleep(1)
        assert following.entries == [0, 1]
        await following.stop()


async def test_a_bookie_that_does_not_wait_is_asked_again_after_a_growing_pause(cluster: SmallCluster) -> None:
    writer = await cluster.client(1).create_ledger(1, write_quorum=1, ack_quorum=1)
    await writer.append(b"x")
    await asyncio.sleep(1)
    [bookie] = [cluster.bookies[name] for name in writer.metadata.ensemble]
    polls = 0

    def at_once(request: v3.Request) -> bytes:
        nonlocal polls
        if not (isinstance(request, v3.ReadRequest) and request.is_long_poll):
            return bookie.USUAL
        polls += 1
        assert polls < 1000, "again and again"
        return encode_response(ReadResponse(request.header.request_id, Code.OK, writer.id, -1, None, 0))

    bookie.script_v3 = at_once
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        await asyncio.sleep(10)
        assert following.entries == [0] and polls <= 10 / MAX_PAUSE_S + 10
        await following.stop()


@pytest.mark.rule("N11")
async def test_an_entry_with_a_bad_digest_is_read_elsewhere(cluster: SmallCluster) -> None:
    writer = await cluster.client(1).create_ledger(3, write_quorum=3)
    await writer.append(b"x")

    def damaged(request: v3.Request) -> bytes:
        if isinstance(request, v3.ReadRequest) and request.is_long_poll and request.previous_lac == 0:
            bad = writer.id.to_bytes(8, "big") + bytes(40)
            return encode_response(ReadResponse(request.header.request_id, Code.OK, writer.id, 1, bad, 1))
        return next(iter(cluster.bookies.values())).USUAL

    await writer.append(b"y")
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        assert reader.last_entry == 0
        for bookie in cluster.bookies.values():
            bookie.script_v3 = damaged
        following = Following(reader)
        await asyncio.sleep(1)
        assert (following.entries, following.data) == ([0, 1], [b"x", b"y"])
        await following.stop()


async def test_q6_nothing_beyond_the_lac_is_delivered(cluster: SmallCluster) -> None:
    """Entries that a bookie has, but that have no quorum, stay out."""
    writer = await cluster.client(1, add_timeout_s=60.0).create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"x")
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        await asyncio.sleep(1)
        cluster.bookies[writer.metadata.ensemble[0]].held = []
        for _ in range(5):
            writer.append_nowait(b"y")
            await asyncio.sleep(0.3)
        assert following.entries == [0]
        cluster.bookies[writer.metadata.ensemble[0]].release()
        await asyncio.sleep(1)
        assert following.entries == list(range(6))
        await following.stop()


async def test_who_stops_following_leaves_nothing_behind(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    await writer.append(b"x")
    before = asyncio.all_tasks()
    async with await cluster.client(2).open_ledger(writer.id) as reader:
        following = Following(reader)
        await asyncio.sleep(1)
        assert following.entries == [0]
        await following.stop()
        await asyncio.sleep(0.1)
        assert asyncio.all_tasks() == before
        again = Following(reader)
        await writer.append(b"y")
        await asyncio.sleep(0.5)
        assert again.entries == [0, 1]
        await again.stop()
        await asyncio.sleep(30)  # responses to what nobody waits for
        assert "bookie broke the protocol" not in cluster.kinds()


@pytest.mark.parametrize("wire", ["auto", "v2"])
async def test_whose_reader_is_closed_does_not_wait_for_ever(cluster: SmallCluster, wire: str) -> None:
    """Without its watch a reader would never hear that the ledger was closed."""
    writer = await cluster.client().create_ledger(3)
    await writer.append_batch([b"x", b"y"])
    reader = await cluster.client(2, wire=wire).open_ledger(writer.id)
    following = Following(reader)
    await asyncio.sleep(1)
    await reader.close()
    with pytest.raises(UsageError, match="this reader is closed"):
        await asyncio.wait_for(following.task, 60)
    await writer.close()


async def test_a_read_by_version_3_tells_how_far_the_ledger_goes(cluster: SmallCluster) -> None:
    """Facts 9.2-35: reading advances the LAC of the reader."""
    writer = await cluster.client(1, explicit_lac_interval_s=0.0).create_ledger(3, write_quorum=3)
    for _ in range(5):
        await writer.append(b"x")
    async with await cluster.client(2, wire="v3").open_ledger(writer.id) as reader:
        assert reader.last_entry == 3
        for _ in range(5):
            await writer.append(b"x")
        assert [entry.id async for entry in reader.read(0, 3)] == [0, 1, 2, 3]
        assert reader.last_entry == 8
        assert [entry.id async for entry in reader.read(4, 8)] == [4, 5, 6, 7, 8]
