"""Streams of ours on the original's bookies, and on both kinds at once, by either protocol version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import pytest

import tallystick
from support.clusters import Cluster
from support.owner_process import owner_process
from support.peers import Bookie
from support.stream_owner import PRODUCER, SETTINGS
from support.waiting import until
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, Position

LEASE_S = 1.0
TALKS_OF_ITS_END = {"auto", "v3"}  # version 2 has no request for a LAC
PAYLOAD = b"x" * 1000

_names = (f"interop/streams/persistent/{number}" for number in count())


@pytest.fixture
def name() -> str:
    """Streams of all clusters are side by side in the metadata."""
    return next(_names)


@pytest.fixture(params=["java", "mixed"])
def cluster(request: pytest.FixtureRequest, clusters: Callable[[str], Cluster]) -> Cluster:
    return clusters(request.param)


@pytest.fixture(params=["auto", "v2", "v3"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def bk(cluster: Cluster, wire: str) -> AsyncIterator[BookKeeper]:
    async with tallystick.connect(cluster.uri, settings=ClientSettings(wire=wire)) as client:
        yield client


class Follower:
    """Reads a stream to its end, and on."""

    def __init__(self, bk: BookKeeper, name: str) -> None:
        self.read: list[tuple[Position, bytes]] = []
        self._following = asyncio.create_task(self._follow(bk, name))

    async def _follow(self, bk: BookKeeper, name: str) -> None:
        async with bk.read_stream(name) as reader:
            async for message in reader.read(follow=True):
                self.read.append((message.position, message.data))

    async def reads(self, expected: list[tuple[Position, bytes]]) -> None:
        await until(lambda: self._following.done() or len(self.read) >= len(expected))
        assert self.read == expected

    async def stop(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)


async def append(stream: Stream, *payloads: bytes) -> list[tuple[Position, bytes]]:
    positions = await asyncio.gather(*(stream.append_nowait(payload) for payload in payloads))
    return list(zip(positions, payloads, strict=True))


@pytest.mark.rule("Q10", "Q18", "Q19")
async def test_q19_a_stream_outlives_its_owner_and_is_followed(
    cluster: Cluster, bk: BookKeeper, wire: str, name: str
) -> None:
    """The follower is there all the time, and hears of the last entry of an idle owner if the wire can tell it."""
    async with owner_process(cluster.uri, name, lease_s=LEASE_S, wire=wire) as owner:
        await owner.appended(1)
        follower = Follower(bk, name)
        await owner.appended(50)
        await owner.kill()
    stored = [(position, b"%d" % number) for number, position in enumerate(owner.positions)]
    async with bk.open_stream(name, wait_s=60.0, settings=SETTINGS) as stream:
        assert await stream.append(b"", producer=PRODUCER, sequence=len(stored) - 1) == stored[-1][0]
        if stream.last_confirmed > stored[-1][0]:  # the owner was killed before it said so
            stored.append((stream.last_confirmed, b"%d" % len(stored)))
        stored += await append(stream, *(b"after %d" % number for number in range(30)))
        if wire in TALKS_OF_ITS_END:
            await follower.reads(stored)
    await follower.reads(stored)
    await follower.stop()
    await as_the_original_sees_it(cluster, bk, name)


async def as_the_original_sees_it(cluster: Cluster, bk: BookKeeper, name: str) -> None:
    """Its client reads that each ledger is closed, and what the list says of it; of the newest the list says nothing.

    Its metadata name the stream as a broker's would.
    """
    *older, newest = (await bk.stream_context.catalog.read(name, synced=True)).value.ledgers
    for listed in (*older, newest):
        metadata = await cluster.clients["java"].ask("metadata", ledger=listed.ledger)
        assert metadata["state"] == "CLOSED"
        if listed is not newest:
            assert (int(metadata["last"]) + 1, int(metadata["length"])) == (listed.entries, listed.size)
        custom = dict(pair.split(":") for pair in metadata["custom"].split(","))
        assert bytes.fromhex(custom[b"pulsar/managed-ledger".hex()]).decode() == name


@pytest.mark.rule("Q18", "Q19")
async def test_q19_a_cursor_with_holes_comes_to_its_next_owner(cluster: Cluster, bk: BookKeeper, name: str) -> None:
    """Its first owner dies with the holes in a ledger, the second one closes it: then they are in its node."""
    acked = [0, 1, 2, 5, 7, 11, 30]
    async with bk.open_stream(name, settings=SETTINGS) as stream:
        stored = await append(stream, *(b"%d" % number for number in range(50)))
    async with tallystick.connect(cluster.uri) as first:
        cursor = await first.cursor(name, "billing")
        messages = await cursor.read(50)
        assert [(message.position, message.data) for message in messages] == stored
        for number in acked:
            await cursor.ack(messages[number])
    catalog = bk.stream_context.catalog
    assert (await catalog.read_cursor(name, "billing")).value.ledger != NO_LEDGER
    left = [entry for number, entry in enumerate(stored) if number not in acked]
    async with bk.cursor(name, "billing") as second:
        assert await second.refresh() == len(left)
        assert [(message.position, message.data) for message in await second.read(50, wait=False)] == left
    assert (await catalog.read_cursor(name, "billing")).value.ledger == NO_LEDGER
    async with bk.cursor(name, "billing") as third:
        assert [(message.position, message.data) for message in await third.read(50, wait=False)] == left
    await bk.delete_stream(name)
    assert not set(map(int, await ledgers(cluster))) & {position.ledger for position, _ in stored}


async def ledgers(cluster: Cluster) -> list[str]:
    return (await cluster.clients["java"].ask("ledgers"))["ledgers"].split(",")


# -- a bookie of the original is killed --------------------------------------------------------------------------------


async def ensemble_of(bk: BookKeeper, stream: Stream) -> list[str]:
    """The bookies that take its entries."""
    metadata = (await bk.context.driver.read_ledger(stream.last_confirmed.ledger)).value
    return list(metadata.fragments[-1].bookies)


def killed(cluster: Cluster, ensemble: list[str]) -> Bookie:
    victim = next(bookie for bookie in cluster.bookies if bookie.kind == "java" and bookie.id in ensemble)
    victim.kill()
    return victim


@pytest.mark.rule("Q7", "Q8", "Q19")
@pytest.mark.parametrize("cluster", ["mixed"], indirect=True)
@pytest.mark.parametrize("wire", ["v2", "v3"], indirect=True)
async def test_q8_an_original_bookie_is_replaced_under_a_stream(cluster: Cluster, bk: BookKeeper, name: str) -> None:
    """Two of ours and one of the original's, which is killed: the fourth takes its place."""
    stream = await bk.open_stream(name)
    stored = await append(stream, PAYLOAD)
    follower = Follower(bk, name)
    while sum(id.startswith("tally") for id in await ensemble_of(bk, stream)) != 2:
        await stream.roll_over()
        stored += await append(stream, PAYLOAD)
    before = await ensemble_of(bk, stream)
    victim = killed(cluster, before)
    try:
        stored += await append(stream, *[PAYLOAD] * 20)
        after = await ensemble_of(bk, stream)
        spare = next(bookie.id for bookie in cluster.bookies if bookie.id not in before)
        assert after == [spare if id == victim.id else id for id in before]
        assert {position.ledger for position, _ in stored[-21:]} == {stream.last_confirmed.ledger}
        await stream.close()
        await follower.reads(stored)
    finally:
        await follower.stop()
        await cluster.restart(victim)


@pytest.mark.rule("Q9", "Q18", "Q19")
@pytest.mark.parametrize(("cluster", "wire"), [("java", "v3"), ("mixed", "v2")], indirect=True)
async def test_q9_a_stream_rolls_over_once_an_original_bookie_is_back(cluster: Cluster, name: str, wire: str) -> None:
    """All bookies have all entries, so nothing replaces the one that is killed: the ledger ends, and what it did not
    confirm is sent on once there can be another."""
    size = len(cluster.bookies)
    everywhere = StreamSettings(ensemble=size, write_quorum=size, ack_quorum=size)
    settings = ClientSettings(wire=wire, degraded_writes=False)
    async with tallystick.connect(cluster.uri, settings=settings) as bk:
        stream = await bk.open_stream(name, settings=everywhere)
        stored = await append(stream, *(b"%d" % number for number in range(10)))
        victim = killed(cluster, await ensemble_of(bk, stream))
        appending = asyncio.create_task(append(stream, *(b"%d" % number for number in range(10, 30))))
        try:
            await until(lambda: is_closed(bk, stored[-1][0]))
            assert not appending.done()
        finally:
            await cluster.restart(victim)
        stored += await appending
        await stream.close()
        async with bk.read_stream(name) as reader:
            assert [(message.position, message.data) async for message in reader.read()] == stored
        ends: dict[int, int] = {position.ledger: position.entry for position, _ in stored}
        assert list(ends.values()) == [9, 19]
        await as_the_original_sees_it(cluster, bk, name)


async def is_closed(bk: BookKeeper, last: Position) -> Any:
    """Whether this position is the last of its ledger."""
    metadata = (await bk.context.driver.read_ledger(last.ledger)).value
    return metadata.last_entry == last.entry
