"""The LAC that an idle writer tells bookies by itself (facts 5.11, 9.2-34)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.fake_bookie import FakeBookie
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger.bookie_peer import BookiePeer
from tallystick.bookkeeper.ledger.link import BookieLink
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.wire import v3, v3_responses
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.errors import LedgerFenced


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


def told(bookie: FakeBookie) -> list[tuple[int, int]]:
    """The (ledger, LAC) pairs that a bookie was told."""
    return [(one.ledger, one.lac) for one in bookie.requests_v3 if isinstance(one, v3.WriteLacRequest)]


def told_all(cluster: SmallCluster) -> list[list[tuple[int, int]]]:
    return [told(bookie) for bookie in cluster.bookies.values()]


async def test_an_idle_writer_tells_its_lac_once_to_the_bookies_of_that_entry(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=2)
    await writer.append_batch([b"x"] * 5)
    assert not any(bookie.requests_v3 for bookie in cluster.bookies.values())
    assert [bookie.opened for bookie in cluster.bookies.values()] == [1, 1, 1]  # no second connection before
    await asyncio.sleep(1)
    slots = [4 % 3, 5 % 3]
    ensemble = writer.metadata.ensemble
    for slot, name in enumerate(ensemble):
        assert told(cluster.bookies[name]) == ([(writer.id, 4)] if slot in slots else [])
    [request] = cluster.bookies[ensemble[slots[0]]].requests_v3
    assert isinstance(request, v3.WriteLacRequest)
    assert Digest.of(DigestType.CRC32C).decode_lac(writer.id, request.body) == 4
    await writer.append(b"y")
    await asyncio.sleep(1)
    assert sorted(one for told in told_all(cluster) for one in told) == [(writer.id, 4)] * 2 + [(writer.id, 5)] * 2


async def test_a_busy_writer_tells_it_with_its_entries_alone(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3)
    for _ in range(40):
        await writer.append(b"x")
        await asyncio.sleep(0.05)
    assert told_all(cluster) == [[], [], []]


@pytest.mark.parametrize("settings", [{"explicit_lac_interval_s": 0.0}, {"wire": "v2"}])
async def test_off_or_without_version_3_nothing_is_told(cluster: SmallCluster, settings: dict[str, Any]) -> None:
    writer = await cluster.client(1, **settings).create_ledger(3)
    await writer.append(b"x")
    await asyncio.sleep(1)
    assert [bookie.requests_v3 for bookie in cluster.bookies.values()] == [[], [], []]
    assert [bookie.opened for bookie in cluster.bookies.values()].count(1) == 2


async def test_a_writer_that_ended_or_was_fenced_tells_nothing(cluster: SmallCluster) -> None:
    client = cluster.client()
    closed, aborted, fenced = [await client.create_ledger(3) for _ in range(3)]
    for writer in (closed, aborted, fenced):
        await writer.append(b"x")
    await closed.close()
    aborted.abort()
    async with client.open_ledger(fenced.id, recover=True):
        pass
    with pytest.raises(LedgerFenced):
        await fenced.append(b"y")
    await asyncio.sleep(1)
    assert told_all(cluster) == [[], [], []]


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """No connection of version 3 is there before it is set."""
    gate, connect = asyncio.Event(), BookiePeer._connect

    async def connect_late(peer: BookiePeer, link: BookieLink) -> None:
        if peer._is_second:
            await gate.wait()
        await connect(peer, link)

    monkeypatch.setattr(BookiePeer, "_connect", connect_late)
    return gate


async def test_p6_what_waits_for_a_connection_is_not_sent_once_the_writer_is_fenced(
    cluster: SmallCluster, connected: asyncio.Event
) -> None:
    client = cluster.client()
    fenced, busy, open_writer = [await client.create_ledger(3, write_quorum=3) for _ in range(3)]
    for writer in (fenced, busy, open_writer):
        await writer.append(b"x")
    await asyncio.sleep(1)
    async with client.open_ledger(fenced.id, recover=True):
        pass
    with pytest.raises(LedgerFenced):
        await fenced.append(b"y")
    await busy.append(b"y")
    connected.set()
    await asyncio.sleep(1)
    assert [sorted(each) for each in told_all(cluster)] == [[(busy.id, 1), (open_writer.id, 0)]] * 3
    await asyncio.sleep(60)
    assert [len(each) for each in told_all(cluster)] == [2, 2, 2]
    assert "explicit LAC not taken" not in cluster.kinds()


async def test_what_waits_for_a_connection_that_fails_is_told_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, attempts = BookiePeer._connect, list[str]()

    async def connect_at_the_third(peer: BookiePeer, link: BookieLink) -> None:
        if peer._is_second and len(attempts) < 2:
            await asyncio.sleep(0.1)
            attempts.append(peer.bookie)
            link.end("the bookie cannot be reached")
        else:
            await connect(peer, link)

    monkeypatch.setattr(BookiePeer, "_connect", connect_at_the_third)
    writer = await cluster.client().create_ledger(1, write_quorum=1, ack_quorum=1)
    await writer.append(b"x")
    await asyncio.sleep(60)
    assert len(attempts) == 2 and cluster.kinds().count("explicit LAC not taken") == 1
    assert told(cluster.bookies[writer.metadata.ensemble[0]]) == [(writer.id, 0)]


async def test_while_one_is_unanswered_none_follows_and_then_the_newest(cluster: SmallCluster) -> None:
    writer = await cluster.client(1, add_timeout_s=60.0).create_ledger(1, write_quorum=1, ack_quorum=1)
    [bookie] = [cluster.bookies[name] for name in writer.metadata.ensemble]
    bookie.script_v3 = lambda request: None
    for _ in range(4):
        await writer.append(b"x")
        await asyncio.sleep(0.5)
    assert told(bookie) == [(writer.id, 0)]
    bookie.script_v3 = None
    request = bookie.requests_v3[0]
    assert isinstance(request, v3.WriteLacRequest)
    bookie.say(
        v3_responses.encode_response(v3_responses.WriteLacResponse(request.header.request_id, Code.OK, writer.id))
    )
    await asyncio.sleep(0.5)
    assert told(bookie) == [(writer.id, 0), (writer.id, 3)]


@pytest.mark.parametrize("how", ["code", "closes", "hangs"])
async def test_a_bookie_that_takes_none_costs_nothing_else_and_is_named_once(cluster: SmallCluster, how: str) -> None:
    writer = await cluster.client(1, add_timeout_s=0.2).create_ledger(3, write_quorum=3, ack_quorum=3)
    odd = cluster.bookies["b1"]
    if how == "code":
        odd.script_v3 = lambda request: v3_responses.encode_response(
            v3_responses.WriteLacResponse(request.header.request_id, Code.READ_ONLY, writer.id)
        )
    elif how == "hangs":
        odd.script_v3 = lambda request: None
    else:
        odd.speaks_v3 = False
    for _ in range(3):
        await writer.append(b"x")
        await asyncio.sleep(1)
    assert [event.fields["bookie"] for event in cluster.events if event.kind == "explicit LAC not taken"] == ["b1"]
    assert "ensemble changed" not in cluster.kinds() and "bookie failed" not in cluster.kinds()
    assert told(cluster.bookies["b0"]) == told(cluster.bookies["b2"]) == [(writer.id, lac) for lac in range(3)]
    await writer.close()


async def test_the_lac_of_an_older_fragment_is_told_to_the_bookies_that_have_that_entry(cluster: SmallCluster) -> None:
    """A bookie that was missing may be replaced while the writer is idle."""
    writer = await cluster.client().create_ledger(3, write_quorum=2)
    await writer.append(b"x")
    assert writer._session is not None
    metadata, state = writer.metadata, writer._session.state
    state.store(Versioned(metadata.with_fragment(1, ("b7", "b8", "b9")), state.versioned.version))
    told = writer.explicit_lac()
    assert told is not None and (told.lac, told.bookies) == (0, metadata.ensemble[:2])


async def test_a_bookie_that_took_one_since_is_named_again(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(1, write_quorum=1, ack_quorum=1)
    [bookie] = [cluster.bookies[name] for name in writer.metadata.ensemble]

    def refuse(request: v3.Request) -> bytes:
        response = v3_responses.WriteLacResponse(request.header.request_id, Code.READ_ONLY, writer.id)
        return v3_responses.encode_response(response)

    for script in (refuse, refuse, None, refuse):
        bookie.script_v3 = script
        await writer.append(b"x")
        await asyncio.sleep(1)
    assert cluster.kinds().count("explicit LAC not taken") == 2


async def test_a_lac_that_no_bookie_took_is_told_again_until_one_does(cluster: SmallCluster) -> None:
    """Who followed the ledger of an idle writer never got its last entry."""
    writer = await cluster.client().create_ledger(3, write_quorum=3)
    for bookie in cluster.bookies.values():
        bookie.script_v3 = lambda request: v3_responses.encode_response(
            v3_responses.WriteLacResponse(request.header.request_id, Code.READ_ONLY, writer.id)
        )
    await writer.append(b"x")
    await asyncio.sleep(60)
    assert all(4 <= len(each) <= 20 for each in told_all(cluster)), "ever more seldom"
    for bookie in cluster.bookies.values():
        bookie.script_v3 = None
    before = told(bookie)
    await asyncio.sleep(60)
    assert told_all(cluster) == [[*before, (writer.id, 0)]] * 3
    assert "ensemble changed" not in cluster.kinds() and "bookie failed" not in cluster.kinds()


async def test_a_writer_that_ended_tells_nothing_again(cluster: SmallCluster) -> None:
    writer = await cluster.client(1, add_timeout_s=0.2).create_ledger(3)
    for bookie in cluster.bookies.values():
        bookie.script_v3 = lambda request: None
    await writer.append(b"x")
    await asyncio.sleep(0.2)
    await writer.close()
    before = told_all(cluster)
    await asyncio.sleep(60)
    assert told_all(cluster) == before


async def test_thousands_of_idle_writers_tell_theirs_in_turns(cluster: SmallCluster) -> None:
    client = cluster.client()
    writers = [await client.create_ledger(3, write_quorum=2) for _ in range(300)]  # most have no session any more
    await asyncio.gather(*(writer.append(b"x") for writer in writers))
    await asyncio.sleep(1)
    assert sum(map(len, told_all(cluster))) == 2 * 300
