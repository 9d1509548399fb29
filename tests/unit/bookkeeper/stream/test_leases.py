"""Who owns what, and how an owner hears that it does not any more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, StoreFaults
from tallystick.bookkeeper.metadata.store import Change, Create, Delete, Znode
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.leases import CHANGED_AT_ONCE, LOOKED_AT, LOOKS, Lease, Leases
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.errors import MetadataUnavailable, StreamOwned, UsageError

PATH = "/tallystick/owners/a"


def leases_of(bk: BookKeeper) -> Leases:
    return bk.stream_context.leases


def client(cluster: SmallCluster, name: str, seed: int = 1) -> BookKeeper:
    return cluster.client(seed, StreamClientSettings(owner=name, lease_s=6.0))


@pytest.fixture
async def leases(cluster: SmallCluster) -> AsyncIterator[Leases]:
    yield leases_of(client(cluster, "first"))


async def lose_session(cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch, *paths: str) -> None:
    """The session has expired, and the store has another one."""
    for path in paths:
        await cluster.store.change(Delete(path))
    store = leases._store
    assert store is not None
    monkeypatch.setattr(store, "owners", (*store.owners, "the next session"))
    tree = store._tree  # type: ignore[attr-defined]
    monkeypatch.setattr(
        store,
        "change",
        lambda *changes: store._call(  # type: ignore[attr-defined]
            lambda: tree.transact(lambda: _apply(tree, changes, store.owners[-1]))
        ),
    )


def _apply(tree: object, changes: object, owner: str) -> None:
    from tallystick.bookkeeper.metadata.changes import apply

    apply(tree, changes, owner)  # type: ignore[arg-type]


async def test_a_lease_says_who_and_since_when(cluster: SmallCluster, leases: Leases) -> None:
    await leases.take(PATH)
    node = await cluster.store.get(PATH)
    assert node is not None and node.owner is not None
    stored = json.loads(node.data)
    assert stored["owner"] == "first" and abs(stored["since_ms"] - leases._context.clock.wall_ms()) < 1000
    with pytest.raises(StreamOwned) as owned:
        await leases_of(client(cluster, "second")).take(PATH, stream="s", cursor="c")
    error = owned.value
    assert (error.owner, error.since_ms, error.stream, error.cursor) == ("first", stored["since_ms"], "s", "c")


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"owner": 1, "since_ms": "x"}', b"[" * 100_000])
async def test_what_others_wrote_there_hurts_nobody(cluster: SmallCluster, leases: Leases, data: bytes) -> None:
    other = await cluster.store.another(session_timeout_s=1.0)
    await other.change(Create(PATH, data, ephemeral=True))
    with pytest.raises(StreamOwned) as owned:
        await leases.take(PATH)
    assert owned.value.owner is None and owned.value.since_ms is None
    await other.close()
    assert (await leases.take(PATH)).is_held


async def test_another_handle_of_the_same_client_is_another_owner(leases: Leases) -> None:
    first = await leases.take(PATH)
    with pytest.raises(StreamOwned, match="another handle"):
        await leases.take(PATH)
    second = await leases.take(PATH, takeover=True)
    assert not first.is_held and second.is_held and second.taken_from == "first"
    await leases.give_back(first)
    assert await leases.is_held(second)
    taken = await asyncio.gather(*(leases.take("/tallystick/owners/b") for _ in range(3)), return_exceptions=True)
    assert sum(isinstance(one, StreamOwned) for one in taken) == 2


async def test_a_look_leaves_a_lease_alone_that_was_given_back_and_taken_again_meanwhile(
    leases: Leases, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote the earlier one there again: when the later one was given back, the stream stayed owned."""
    first = await leases.take(PATH)
    store, taken = leases._store, list[Lease]()
    assert store is not None
    get_many = store.get_many

    async def get_late(paths: Sequence[str]) -> Mapping[str, Znode]:
        monkeypatch.setattr(store, "get_many", get_many)
        await leases.give_back(first)
        await asyncio.sleep(0.1)
        taken.append(await leases.take(PATH))
        return await get_many(paths)

    monkeypatch.setattr(store, "get_many", get_late)
    assert not await leases.is_held(first)
    await leases.give_back(taken[0])
    assert await cluster.store.get(PATH) is None


async def test_who_is_taken_over_hears_it_once(cluster: SmallCluster, leases: Leases) -> None:
    lease, told = await leases.take(PATH), list[str]()
    lease.lost = lambda: told.append("lost")
    other = leases_of(client(cluster, "second"))
    await other.take(PATH, takeover=True)
    await asyncio.sleep(5)
    assert told == ["lost"] and not lease.is_held and not await leases.is_held(lease)
    await leases.give_back(lease)
    node = await cluster.store.get(PATH)
    assert node is not None and b"second" in node.data, "nothing of another owner's is deleted"


async def test_a_lease_is_waited_for(cluster: SmallCluster, leases: Leases) -> None:
    lease = await leases.take(PATH)
    other = leases_of(client(cluster, "second"))
    with pytest.raises(StreamOwned):
        await other.take(PATH, wait_s=2.0)
    waiting = asyncio.ensure_future(other.take(PATH, wait_s=20.0))
    await asyncio.sleep(3)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await leases.give_back(lease)
    assert (await waiting).is_held and loop.time() - began < 0.05


async def test_a_lease_whose_end_nobody_tells_is_taken_well_before_another_lease_time(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = await leases.take(PATH), leases_of(client(cluster, "second"))
    store = await other._opened()
    watch = store.watch
    monkeypatch.setattr(store, "watch", lambda path, changed: watch(path, lambda: None))
    waiting = asyncio.ensure_future(other.take(PATH, wait_s=60.0))
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await leases.give_back(lease)
    assert (await waiting).is_held and loop.time() - began <= 6.0 / LOOKS


async def test_who_has_waited_for_a_lease_hears_nothing_more_of_it(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = await leases.take(PATH), leases_of(client(cluster, "second"))
    store, told = await other._opened(), list[str]()
    watch = store.watch

    def watched(path: str, changed: Callable[[], None]) -> object:
        def tell() -> None:
            told.append(path)
            changed()

        return watch(path, tell)

    monkeypatch.setattr(store, "watch", watched)
    waiting = asyncio.ensure_future(other.take(PATH, wait_s=60.0))
    await asyncio.sleep(0.1)
    await leases.give_back(lease)
    taken = await waiting
    await asyncio.sleep(0.1)
    assert told
    told.clear()
    await other.give_back(taken)
    await asyncio.sleep(0.1)
    assert told == []


async def test_leases_that_a_lost_session_took_are_made_again(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"/tallystick/owners/{n}" for n in range(3 * LOOKED_AT)]
    held = [await leases.take(path) for path in paths]
    await lose_session(cluster, leases, monkeypatch, *paths)
    other = leases_of(client(cluster, "second"))
    await other.take(paths[1])
    await asyncio.sleep(2.5)
    assert [lease.path for lease in held if not lease.is_held] == [paths[1]]
    assert len(await cluster.store.get_many(paths)) == len(paths)


async def test_many_leases_are_made_again_at_one_time_but_not_all(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One behind the other they would be anybody's for as many round trips."""
    paths = [f"/tallystick/owners/{n}" for n in range(2 * CHANGED_AT_ONCE)]
    held = [await leases.take(path) for path in paths]
    await lose_session(cluster, leases, monkeypatch, *paths)
    store = leases._store
    assert store is not None
    change, under_way, most = store.change, 0, 0

    async def counted(*changes: Change) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await change(*changes)
        under_way -= 1

    monkeypatch.setattr(store, "change", counted)
    await asyncio.sleep(2.5)
    assert most == CHANGED_AT_ONCE and all(lease.is_held for lease in held)


async def test_a_lease_that_was_lost_is_taken_back_when_somebody_asks(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, told = await leases.take(PATH), list[str]()
    lease.regained = lambda: told.append("regained")
    assert await leases.is_held(lease) and told == []
    await lose_session(cluster, leases, monkeypatch, PATH)
    assert await leases.is_held(lease) and told == ["regained"]
    node = await cluster.store.get(PATH)
    assert node is not None and node.owner == "the next session"


async def test_a_lease_that_an_earlier_session_still_has_goes_over_to_the_new_one(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would end with that session, some time later."""
    lease = await leases.take(PATH)
    await lose_session(cluster, leases, monkeypatch)
    assert await leases.is_held(lease)
    node = await cluster.store.get(PATH)
    assert node is not None and node.owner == "the next session"


async def test_a_takeover_within_the_client_that_failed_leaves_the_lease_to_who_has_it(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that it made is not that of the lease, which could not be given back."""
    bk = client(cluster, "first")
    leases = leases_of(bk)
    lease = await leases.take(PATH)
    await asyncio.sleep(1)
    faults = StoreFaults(bk, monkeypatch, leases._store)

    def lose_all(changes: Sequence[Change]) -> str:
        faults.is_away = True
        return LOSE

    faults.script = lose_all
    with pytest.raises(MetadataUnavailable):
        await leases.take(PATH, takeover=True)
    await asyncio.sleep(0.1)
    faults.is_away, faults.script = False, lambda changes: None
    assert await leases.is_held(lease)
    await leases.give_back(lease)
    assert (await leases_of(client(cluster, "second")).take(PATH)).is_held


async def test_after_a_lost_session_all_leases_are_looked_at_though_the_first_look_failed(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = client(cluster, "first")
    leases = leases_of(bk)
    paths = [f"/tallystick/owners/{n}" for n in range(3 * LOOKED_AT)]
    for path in paths:
        await leases.take(path)
    await asyncio.sleep(2.5)
    await lose_session(cluster, leases, monkeypatch, *paths)
    faults = StoreFaults(bk, monkeypatch, leases._store)
    faults.is_away = True
    await asyncio.sleep(2)
    faults.is_away = False
    await asyncio.sleep(2)
    assert len(await cluster.store.get_many(paths)) == len(paths)


async def test_all_leases_are_looked_at_in_turns(
    cluster: SmallCluster, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at thousands every two seconds would be most of what the metadata service does."""
    held = [await leases.take(f"/tallystick/owners/{n}") for n in range(3 * LOOKED_AT)]
    await asyncio.sleep(2.5)  # the first look is at all of them
    store = leases._store
    assert store is not None
    asked: list[int] = []
    get_many = store.get_many

    async def counted(paths: Sequence[str]) -> Mapping[str, Znode]:
        asked.append(len(paths))
        return await get_many(paths)

    monkeypatch.setattr(store, "get_many", counted)
    other = leases_of(client(cluster, "second"))
    for lease in held[:: LOOKED_AT - 1]:
        await other.take(lease.path, takeover=True)
    await asyncio.sleep(2 * 4 + 0.5)
    assert (
        max(asked) <= LOOKED_AT
        and sum(asked) <= 5 * LOOKED_AT
        and not any(lease.is_held for lease in held[:: LOOKED_AT - 1])
    )
    assert sum(lease.is_held for lease in held) == len(held) - len(held[:: LOOKED_AT - 1])


async def test_while_the_metadata_is_away_nothing_is_lost(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = client(cluster, "first")
    leases = leases_of(bk)
    lease = await leases.take(PATH)
    store = leases._store
    faults = StoreFaults(bk, monkeypatch, store)
    faults.is_away = True
    await asyncio.sleep(20)
    assert lease.is_held
    with pytest.raises(MetadataUnavailable):
        await leases.is_held(lease)
    with pytest.raises(MetadataUnavailable):
        await leases.take("/tallystick/owners/b")
    faults.is_away = False
    assert await leases.is_held(lease) and (await leases.take("/tallystick/owners/b")).is_held


async def test_a_closed_client_has_none_and_takes_none(cluster: SmallCluster) -> None:
    bk = client(cluster, "first")
    leases = leases_of(bk)
    lease = await leases.take(PATH)
    await bk.close()
    assert not lease.is_held and await cluster.store.get(PATH) is None
    with pytest.raises(UsageError):
        await leases.take(PATH)


async def test_a_client_without_streams_has_no_second_session(cluster: SmallCluster) -> None:
    bk = client(cluster, "first")
    await bk.create_ledger()
    assert leases_of(bk)._store is None


async def test_who_is_cancelled_while_it_takes_a_lease_has_none(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = client(cluster, "first")
    leases = leases_of(bk)
    await leases.give_back(await leases.take(PATH))
    store = leases._store
    assert store is not None
    change, made = store.change, asyncio.Event()

    async def hangs(*changes: Change) -> None:
        await change(*changes)
        made.set()
        if isinstance(changes[-1], Create):
            await asyncio.Event().wait()

    monkeypatch.setattr(store, "change", hangs)
    task = asyncio.ensure_future(leases.take(PATH))
    await made.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    monkeypatch.setattr(store, "change", change)
    await asyncio.sleep(0.1)
    assert (await leases_of(client(cluster, "second")).take(PATH)).is_held


async def test_who_is_cancelled_at_any_moment_leaves_nothing(cluster: SmallCluster, leases: Leases) -> None:
    await leases.give_back(await leases.take(PATH))
    other = leases_of(client(cluster, "second"))
    for turns in range(20):
        task = asyncio.ensure_future(leases.take(PATH))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        [taken] = await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.1)
        if not isinstance(taken, BaseException):
            assert turns > 1 and taken.is_held, "it was cancelled at several moments"
            return await leases.give_back(taken)
        lease = await other.take(PATH)
        assert lease.is_held and lease.taken_from is None
        await other.give_back(lease)
    raise AssertionError("it takes fewer turns")


async def test_a_lease_that_was_given_back_can_be_taken_again_at_once(cluster: SmallCluster, leases: Leases) -> None:
    for _ in range(5):
        leases.give_back_soon(await leases.take(PATH))
        lease = await leases.take(PATH)
        await asyncio.sleep(0.1)
        assert lease.is_held and await cluster.store.get(PATH) is not None
        leases.give_back_soon(lease)


async def test_a_lease_that_is_taken_over_says_whose_it_was(cluster: SmallCluster, leases: Leases) -> None:
    await leases.take(PATH)
    second = await leases_of(client(cluster, "second", 2)).take(PATH, takeover=True)
    assert second.taken_from == "first"
    assert (await leases.take(PATH + "2")).taken_from is None
