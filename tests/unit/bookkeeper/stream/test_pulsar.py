"""A stream is left to a broker only if nothing is lost by it, and taken back only when no broker may write it."""

from __future__ import annotations

import json

import pytest

from support.cursors import cursors_of
from support.small_cluster import SmallCluster
from support.streams import ledgers as all_ledgers
from tallystick.admin.streams import create_stream
from tallystick.bookkeeper.metadata.store import Create, Delete, Update
from tallystick.bookkeeper.stream import catalog
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo, StreamLedger
from tallystick.errors import (
    HandOverRefused,
    MetadataError,
    NoSuchStream,
    NotFound,
    StreamClosed,
    StreamOwned,
    UsageError,
)

NAME = "t/n/persistent/s"
TENANT, NAMESPACE = "/admin/policies/t", "/admin/policies/t/n"
EPHEMERAL = "/namespace/t/n/0x00000000_0xffffffff"


@pytest.fixture
async def bk(cluster: SmallCluster) -> BookKeeper:
    await cluster.store.change(Create("/admin/clusters/east", b"{}"))
    return cluster.client()


async def policies(cluster: SmallCluster, **fields: object) -> None:
    """The namespace has these alone."""
    node = await cluster.store.get(NAMESPACE)
    data = json.dumps(fields).encode()
    await cluster.store.change(Create(NAMESPACE, data) if node is None else Update(NAMESPACE, data, node.version))


async def filled(bk: BookKeeper, *, ledgers: int = 2) -> None:
    async with bk.open_stream(NAME) as stream:
        for number in range(ledgers):
            await stream.append(b"%d" % number)
            await stream.roll_over()


async def listed(bk: BookKeeper) -> list[tuple[int, int, bool]]:
    info = (await bk.stream_context.catalog.read(NAME, synced=True)).value
    return [(each.ledger, each.entries, each.is_closed) for each in info.ledgers]


async def test_create_makes_what_a_broker_needs_and_changes_nothing_that_exists(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    node = f"/managed-ledgers/{NAME}"
    assert await bk.create_for_pulsar("persistent://t/n/s") == (TENANT, NAMESPACE, node)
    tenant, namespace = await cluster.store.get(TENANT), await cluster.store.get(NAMESPACE)
    assert tenant is not None and json.loads(tenant.data)["allowedClusters"] == ["east"]
    assert namespace is not None and json.loads(namespace.data)["replication_clusters"] == ["east"]
    await cluster.store.change(Create("/admin/clusters/west", b"{}"))
    assert await bk.create_for_pulsar(NAME, cluster="west") == ()
    assert await cluster.store.get(NAMESPACE) == namespace and await listed(bk) == []


async def test_create_asks_for_the_cluster_where_it_cannot_know_it(cluster: SmallCluster, bk: BookKeeper) -> None:
    await cluster.store.change(Create("/admin/clusters/west", b"{}"))
    with pytest.raises(UsageError, match="2 clusters"):
        await bk.create_for_pulsar(NAME)
    with pytest.raises(UsageError, match="no such cluster of Pulsar") as refused:
        await bk.create_for_pulsar(NAME, cluster="wset")
    assert "clusters=['east', 'west']" in str(refused.value).replace('"', "'")
    assert await cluster.store.get(TENANT) is None
    assert NAMESPACE in await bk.create_for_pulsar(NAME, cluster="west")


async def used_as_one_that_exists(bk: BookKeeper, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Versions before made streams of such names."""
    with monkeypatch.context() as before:
        before.setattr(catalog, "require_broker_name", lambda stream: None)
        assert await create_stream(bk, name) and not await create_stream(bk, name)
    async with bk.open_stream(name) as stream, bk.cursor(name, "c") as cursor:
        await stream.append(b"a")
        assert [message.data for message in await cursor.read()] == [b"a"]


@pytest.mark.parametrize(
    "name", ["t t/n/persistent/s", "t/n,n/persistent/s", "persistent://t/n\u00e4/s", "t%20/n/persistent/s"]
)
async def test_a_name_that_no_broker_takes_is_refused(
    cluster: SmallCluster, bk: BookKeeper, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(UsageError, match="a Pulsar broker takes"):
        await bk.create_for_pulsar(name)
    assert await cluster.store.children("/admin/policies") in (None, [])
    with pytest.raises(UsageError, match="a Pulsar broker takes"):
        await bk.open_stream(name)
    assert [each async for each in bk.streams()] == []
    await used_as_one_that_exists(bk, monkeypatch, name)
    with pytest.raises(UsageError, match="a Pulsar broker takes"):
        await bk.hand_over(name, force=True)


@pytest.mark.parametrize("topic", ["\u00e9", "a b", "100%", "a:b", "%c3%a9", "a~b"])
async def test_a_topic_that_a_broker_looks_for_elsewhere_is_refused(
    cluster: SmallCluster, bk: BookKeeper, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """It was made, and no broker ever found it."""
    name = f"t/n/persistent/{topic}"
    with pytest.raises(UsageError, match=r"written as in a URL.*would_be=t/n/persistent/[\w%+]+"):
        await bk.create_for_pulsar(name)
    assert await cluster.store.children("/admin/policies") in (None, [])
    with pytest.raises(UsageError, match="written as in a URL"):
        await bk.open_stream(name)
    with pytest.raises(UsageError, match="written as in a URL"):
        await create_stream(bk, name)
    assert [each async for each in bk.streams()] == []
    await used_as_one_that_exists(bk, monkeypatch, name)
    with pytest.raises(UsageError, match="written as in a URL"):
        await bk.hand_over(name, force=True)


async def test_a_name_with_all_signs_that_a_broker_takes(bk: BookKeeper) -> None:
    assert len(await bk.create_for_pulsar("persistent://A-z_0=/n:1.x/any thing, at all")) == 3


async def test_where_there_is_no_pulsar_it_says_so(cluster: SmallCluster, bk: BookKeeper) -> None:
    for name in await cluster.store.children("/admin/clusters") or []:
        await cluster.store.change(Delete(f"/admin/clusters/{name}"))
    with pytest.raises(UsageError, match="not an empty text"):
        await bk.create_for_pulsar(NAME, cluster="")
    with pytest.raises(NotFound, match=r"no Pulsar keeps its metadata here.*missing=/admin/clusters"):
        await bk.create_for_pulsar(NAME)
    await filled(bk)
    with pytest.raises(NotFound, match=r"no Pulsar keeps its metadata here.*missing=/admin/clusters"):
        await bk.hand_over(NAME)
    assert TENANT in await bk.create_for_pulsar(NAME, cluster="east"), "it may be made before Pulsar is"


async def test_a_stream_is_handed_over_closed_and_by_nobody_owned(cluster: SmallCluster, bk: BookKeeper) -> None:
    await bk.create_for_pulsar(NAME)
    stream = await bk.open_stream(NAME)
    for data in (b"a", b"b"):
        await stream.append(data)
    await stream.roll_over()
    await stream.append(b"c")
    assert not await bk.hand_over(NAME)
    assert await listed(bk) == [(0, 2, True), (1, 1, True)]
    with pytest.raises(StreamClosed):
        await stream.append(b"d")
    async with cluster.client(2).take_back(NAME) as again:
        assert await again.append(b"d") == Position(2, 0)


async def test_what_owners_that_died_left_of_a_stream_is_deleted_with_its_hand_over(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    """A broker knows nothing of notes. One owner had not listed its ledger yet, one had not appended to it."""
    catalog = bk.stream_context.catalog
    await bk.create_for_pulsar(NAME)
    await filled(bk, ledgers=1)
    dead = cluster.client(2)
    await dead.open_stream(NAME)
    await dead.close()
    await bk.create_ledger(beside=lambda ledger: [catalog.note(NAME, ledger)])
    assert not await bk.hand_over(NAME)
    await bk.stream_context.deletions.done()
    assert [ledger for ledger, *_ in await listed(bk)] == await all_ledgers(cluster) == [0]
    assert await catalog.going(NAME) == []


async def test_what_a_broker_would_delete_refuses_it_and_the_owner_goes_on(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    await policies(cluster)
    stream = await bk.open_stream(NAME)
    await stream.append(b"a")
    with pytest.raises(HandOverRefused, match=r"the whole topic .* ledger 0 \(1 entries") as refused:
        await bk.hand_over(NAME)
    assert [each.ledger for each in refused.value.deletions.ledgers] == [0]
    await stream.append(b"b")
    deletions = await bk.hand_over(NAME, force=True)
    assert deletions.topic_after_s == 60 and await listed(bk) == [(0, 2, True)]


async def test_a_durable_cursor_that_has_read_nothing_keeps_all(cluster: SmallCluster, bk: BookKeeper) -> None:
    await policies(cluster)
    await filled(bk)
    cursors = cursors_of(bk)
    async with cursors.open(NAME, "billing") as cursor:
        with pytest.raises(StreamOwned) as owned:
            await bk.hand_over(NAME)
        assert owned.value.cursor == "billing" and owned.value.owner == bk.stream_context.leases.owner
        messages = await cursor.read(1)
    assert not await bk.hand_over(NAME)
    async with cursors.open(NAME, "billing") as cursor:
        await cursor.ack_up_to(messages[0])
    with pytest.raises(HandOverRefused, match="ledger 0"):
        await bk.hand_over(NAME)


async def test_ledgers_without_entries_leave_the_list_and_are_deleted(cluster: SmallCluster, bk: BookKeeper) -> None:
    await bk.create_for_pulsar(NAME)
    await filled(bk, ledgers=1)  # and an empty one
    assert not await bk.hand_over(NAME)
    await bk.stream_context.deletions.done()
    assert await listed(bk) == [(0, 1, True)] and await bk.stream_context.catalog.going(NAME) == []
    assert [ledger async for ledger in bk.ledgers()] == [0]


async def test_a_ledger_that_another_owner_is_about_to_list_is_left_alone(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    """Where the list is not written, nothing keeps another from listing what is noted."""
    await bk.create_for_pulsar(NAME)
    await filled(bk)
    await bk.hand_over(NAME)
    catalog = bk.stream_context.catalog
    ledger = await bk.create_ledger(3, write_quorum=2, ack_quorum=2, beside=lambda id: [catalog.note(NAME, id)])
    await bk.hand_over(NAME)
    await bk.stream_context.deletions.done()
    assert ledger.id in [each async for each in bk.ledgers()] and await catalog.going(NAME) == [ledger.id]
    assert await ledger.append(b"a") == 0


async def test_a_stream_whose_owner_lives_is_not_handed_over_by_another(cluster: SmallCluster, bk: BookKeeper) -> None:
    await bk.create_for_pulsar(NAME)
    stream = await bk.open_stream(NAME)
    await stream.append(b"a")
    other = cluster.client(2)
    with pytest.raises(StreamOwned):
        await other.hand_over(NAME)
    await stream.append(b"b")
    await other.hand_over(NAME, takeover=True)
    assert await listed(bk) == [(0, 2, True)]


async def test_raw_entries_are_handed_over_only_by_force(cluster: SmallCluster, bk: BookKeeper) -> None:
    await bk.create_for_pulsar(NAME)
    stream = await bk.open_stream(NAME, settings=StreamSettings(entry_format="raw"))
    await stream.append(b"no message")
    with pytest.raises(HandOverRefused, match="no messages of Pulsar's"):
        await bk.hand_over(NAME)
    await stream.append(b"it goes on")
    await stream.close()
    with pytest.raises(HandOverRefused) as refused:  # by the newest entry
        await bk.hand_over(NAME)
    assert refused.value.position == Position(0, 1)
    assert not await bk.hand_over(NAME, force=True)


async def test_what_is_not_there_is_told(cluster: SmallCluster, bk: BookKeeper) -> None:
    with pytest.raises(NoSuchStream):
        await bk.hand_over(NAME)
    with pytest.raises(NoSuchStream):
        await bk.take_back(NAME)
    await filled(bk)
    with pytest.raises(NotFound, match="create --pulsar"):
        await bk.hand_over(NAME)
    await cluster.store.change(Create(NAMESPACE, b"\xff"))
    with pytest.raises(MetadataError, match="no policies"):
        await bk.hand_over(NAME)


async def test_a_ledger_that_a_broker_may_write_is_not_taken_back_and_the_broker_is_named(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    await bk.create_for_pulsar(NAME)
    ledger = await bk.create_ledger(3, write_quorum=2, ack_quorum=2)  # as a broker makes one: it has no mark of ours
    catalog = bk.stream_context.catalog
    stored = await catalog.read(NAME)
    await catalog.write(NAME, StreamInfo((StreamLedger(ledger.id, has_counts=False),)), stored.version)
    with pytest.raises(StreamOwned) as owned:
        await bk.take_back(NAME)
    assert owned.value.owner is None
    bundles = b'{"bundles":{"boundaries":["0x00000000","0xffffffff"],"numBundles":1}}'
    await cluster.store.change(
        Create("/admin/local-policies/t/n", bundles), Create(EPHEMERAL, b'{"nativeUrl":"pulsar://h:6650"}')
    )
    for refused in (bk.take_back(NAME), bk.hand_over(NAME)):
        with pytest.raises(StreamOwned, match="a Pulsar broker may write it") as owned:
            await refused
    await ledger.append(b"\x0e\x01")
    async with bk.take_back(NAME, takeover=True) as stream:
        assert stream.last_confirmed == Position(ledger.id, 0)
    assert "stream taken back" in cluster.kinds()
