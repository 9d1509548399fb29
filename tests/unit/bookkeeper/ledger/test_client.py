"""Create, open, list and delete through the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import tallystick
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.wire.values import DigestType, LedgerState
from tallystick.errors import LedgerExists, MetadataError, NoSuchLedger, NotEnoughBookies, UsageError


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


@pytest.mark.rule("Q2")
async def test_q2_creating_asks_no_bookie(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    assert writer.metadata.ensemble_size == 3 and len(set(writer.metadata.ensemble)) == 3
    assert not any(bookie.connections or bookie.requests for bookie in cluster.bookies.values())


@pytest.mark.rule("Q3")
async def test_q3_metadata_is_stored_as_asked(cluster: SmallCluster) -> None:
    client = cluster.client()
    custom = {"application": b"tests", "empty": b""}
    writer = await client.create_ledger(
        4, write_quorum=3, ack_quorum=2, digest="hmac", password=b"secret", custom_metadata=custom, ledger_id=77
    )
    stored = await client.ledger_metadata(77)
    assert writer.id == 77 and stored == writer.metadata
    assert (stored.ensemble_size, stored.write_quorum, stored.ack_quorum) == (4, 3, 2)
    assert (stored.digest_type, stored.password, dict(stored.custom)) == (DigestType.HMAC, b"secret", custom)
    assert (stored.state, stored.last_entry, stored.length) == (LedgerState.OPEN, -1, 0)
    with pytest.raises(LedgerExists, match="choose another id"):
        await client.create_ledger(ledger_id=77)


@pytest.mark.rule("Q2")
@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 2, 3), (3, 2, 0), (0, 0, 0), (3, 0, 0)])
async def test_q2_sizes_that_cannot_be(cluster: SmallCluster, sizes: tuple[int, int, int]) -> None:
    ensemble, write, ack = sizes
    with pytest.raises(UsageError):
        await cluster.client().create_ledger(ensemble, write_quorum=write, ack_quorum=ack)
    assert [ledger async for ledger in cluster.client().ledgers()] == []


@pytest.mark.rule("Q2")
async def test_q2_more_bookies_than_there_are(cluster: SmallCluster) -> None:
    with pytest.raises(NotEnoughBookies):
        await cluster.client().create_ledger(5)


@pytest.mark.parametrize("ledger_id", [-1, 1 << 63])
async def test_ledger_ids_that_cannot_be(cluster: SmallCluster, ledger_id: int) -> None:
    with pytest.raises(UsageError):
        await cluster.client().create_ledger(ledger_id=ledger_id)


@pytest.mark.rule("Q4")
async def test_q4_a_bookie_that_failed_is_left_out_of_new_ledgers(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    failed = writer.metadata.ensemble[1]
    await cluster.bookies[failed].stop()  # still registered: its session has not ended yet
    await writer.append(b"x")
    for _ in range(20):
        assert failed not in (await client.create_ledger(3)).metadata.ensemble
    assert failed in (await client.create_ledger(4)).metadata.ensemble


@pytest.mark.rule("Q1")
@pytest.mark.parametrize("digest", ["crc32c", "crc32", "mac", "dummy"])
async def test_q1_all_digests_write_read_and_recover(cluster: SmallCluster, digest: str) -> None:
    client = cluster.client()
    async with client.create_ledger(digest=digest, password=b"pw") as writer:
        await writer.append_batch([b"", b"one", b"two" * 1000])
    reader = await client.open_ledger(writer.id, password=b"pw")
    assert [entry.data async for entry in reader.read(0, 2)] == [b"", b"one", b"two" * 1000]
    left = await client.create_ledger(digest=digest, password=b"pw")
    await left.append(b"one")
    left.abort()
    assert (await cluster.client().open_ledger(left.id, password=b"pw", recover=True)).last_entry == 0


@pytest.mark.rule("Q1")
async def test_q1_delete_and_list(cluster: SmallCluster) -> None:
    client = cluster.client()
    ids = [(await client.create_ledger()).id for _ in range(3)]
    assert [ledger async for ledger in client.ledgers()] == ids
    await client.delete_ledger(ids[1])
    assert [ledger async for ledger in client.ledgers()] == [ids[0], ids[2]]
    for missing in (client.delete_ledger, client.open_ledger, client.ledger_metadata):
        with pytest.raises(NoSuchLedger):
            await missing(ids[1])
    with pytest.raises(NoSuchLedger):
        await client.open_ledger(ids[1], recover=True)


async def test_bookies_are_those_that_are_registered(cluster: SmallCluster) -> None:
    client = cluster.client()
    await cluster.down("b2")
    assert sorted((await client.bookies()).writable) == ["b0", "b1", "b3"]


async def test_a_closed_client_refuses_work(cluster: SmallCluster) -> None:
    client = cluster.client()
    await client.close()
    await client.close()
    with pytest.raises(UsageError, match="closed"):
        await client.create_ledger()
    with pytest.raises(UsageError, match="closed"):
        client.ledgers()


@pytest.mark.real_time
async def test_connect_both_ways(cluster: SmallCluster) -> None:
    events = tallystick.Events(cluster.events.append)
    uri = f"memory://{cluster.name}"
    async with tallystick.connect(uri, events=events) as bk, bk.create_ledger() as writer:
        await writer.append(b"hello")
    assert "ledger created" in cluster.kinds()
    bk = await tallystick.connect(uri)
    reader = await bk.open_ledger(writer.id)
    assert [entry.data async for entry in reader.read(0, 0)] == [b"hello"]
    await bk.close()


async def test_connect_to_nothing() -> None:
    with pytest.raises(UsageError):
        await tallystick.connect("gopher://hole")
    with pytest.raises(MetadataError, match="there is no cluster here"):
        await tallystick.connect("memory://no-cluster-here")


async def test_a_ledger_is_closed_by_who_enters_its_making_and_open_for_who_awaits_it(cluster: SmallCluster) -> None:
    client = cluster.client()
    async with client.create_ledger() as writer:
        assert await writer.append_batch([b"0", b"1"]) == range(2)
        assert repr(writer) == f"<LedgerWriter ledger={writer.id} lac=1 open>"
    assert (await client.ledger_metadata(writer.id)).last_entry == 1
    async with client.open_ledger(writer.id) as reader:
        assert [entry.data async for entry in reader] == [b"0", b"1"]
        assert repr(reader) == f"<LedgerReader ledger={writer.id} last_entry=1 closed ledger>"

    other = await client.create_ledger()
    assert not (await client.ledger_metadata(other.id)).is_closed
    await other.append(b"2")
    assert repr(client) == "<BookKeeper open, 1 active writers>"


async def test_a_second_entry_makes_no_second_ledger(cluster: SmallCluster) -> None:
    client = cluster.client()
    making = client.create_ledger()
    assert [ledger async for ledger in client.ledgers()] == []  # nothing is made before it is entered
    async with making:
        with pytest.raises(UsageError, match="a second time"):
            await making.__aenter__()
    assert len([ledger async for ledger in client.ledgers()]) == 1


async def test_nodes_that_are_made_in_one_with_a_ledger(cluster: SmallCluster) -> None:
    client, asked_for = cluster.client(), list[int]()

    def beside(ledger: int) -> list[Create]:
        asked_for.append(ledger)
        return [Create("/notes/all")]

    writer = await client.create_ledger(beside=beside)
    assert asked_for == [writer.id] and await cluster.store.get("/notes/all") is not None
    with pytest.raises(UsageError, match="beside"):
        await client.create_ledger(ledger_id=7, beside=beside)
    assert asked_for == [writer.id]


async def test_an_empty_ledger_is_an_empty_loop(cluster: SmallCluster) -> None:
    client = cluster.client()
    async with client.create_ledger() as writer:
        pass
    async with client.open_ledger(writer.id) as reader:
        assert [entry async for entry in reader] == []


async def test_only_the_first_argument_goes_by_its_place(cluster: SmallCluster) -> None:
    client: Any = cluster.client()
    calls: tuple[Callable[[], object], ...] = (
        lambda: client.create_ledger(3, 2, 2),
        lambda: client.open_ledger(1, b"", True),
    )
    for wrong in calls:
        with pytest.raises(TypeError, match="positional"):
            wrong()
    assert [ledger async for ledger in client.ledgers()] == []
