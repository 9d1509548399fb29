"""Requests to ZooKeeper whose answers are lost with the connection: each takes effect once, or fails as it should."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.exceptions import ConnectionLoss

from support.zookeeper import missing
from support.zookeeper_stores import session_of, store_of
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Absent, Change, Check, Create, Delete, Update
from tallystick.bookkeeper.metadata.zk_session import Ask, ZkSession
from tallystick.bookkeeper.wire.values import BookieInfo, Fragment, LedgerMetadata
from tallystick.errors import (
    LedgerExists,
    MetadataConflict,
    NoSuchLedger,
    NoSuchZnode,
    ZnodeChanged,
    ZnodeExists,
    ZnodeNotEmpty,
)

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

INFO = BookieInfo.at("127.0.0.1", 3181)
METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b1",)),))


def lose_responses(monkeypatch: pytest.MonkeyPatch, session: ZkSession, count: int = 1) -> None:
    """The next requests reach the server, and their answers are lost with the connection."""
    ask = session._ask
    left = [None] * count

    async def lost(answer: asyncio.Future[object]) -> object:
        await asyncio.wait([answer])
        answer.exception()
        raise ConnectionLoss

    def asked(request: Ask) -> asyncio.Future[object]:
        answer = ask(request)
        if not left:
            return answer
        left.pop()
        return asyncio.ensure_future(lost(answer))

    monkeypatch.setattr(session, "_ask", asked)


async def test_a_create_with_a_lost_answer_is_known_by_its_token(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.create_ledger(METADATA, 6)  # the folder is there
    lose_responses(monkeypatch, session_of(driver))
    assert (await driver.create_ledger(METADATA, 7)).value == 7
    with pytest.raises(LedgerExists):
        await driver.create_ledger(METADATA, 7)


async def test_a_write_with_a_lost_answer_succeeds_once(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await driver.create_ledger(METADATA)
    lose_responses(monkeypatch, session_of(driver))
    assert await driver.write_ledger(created.value, METADATA.in_recovery(), created.version) == created.version + 1
    assert (await driver.read_ledger(created.value)).version == created.version + 1


async def test_a_conflict_with_a_lost_answer_is_a_conflict(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await driver.create_ledger(METADATA)
    for version in range(2):
        await driver.write_ledger(created.value, METADATA.in_recovery(), version)
    for metadata in (METADATA.closed(-1, 0), METADATA.in_recovery()):
        lose_responses(monkeypatch, session_of(driver))
        with pytest.raises(MetadataConflict):
            await driver.write_ledger(created.value, metadata, created.version)


async def test_a_delete_with_a_lost_answer_is_a_success(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await driver.create_ledger(METADATA)
    lose_responses(monkeypatch, session_of(driver))
    await driver.delete_ledger(created.value)
    with pytest.raises(NoSuchLedger):
        await driver.delete_ledger(created.value)


async def test_cookies_with_lost_answers(driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    await driver.instance_id()
    lose_responses(monkeypatch, session_of(driver))
    await driver.write_cookie("bookie-1", b"one", None)
    with pytest.raises(MetadataConflict):
        await driver.write_cookie("bookie-1", b"two", None)
    monkeypatch.undo()
    lose_responses(monkeypatch, session_of(driver))
    await driver.write_cookie("bookie-1", b"two", 0)
    found = await driver.read_cookie("bookie-1")
    assert found is not None and found.value == b"two"


async def test_a_registration_with_a_lost_answer_is_ours(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.bookies()
    lose_responses(monkeypatch, session_of(driver), count=2)
    registration = await driver.register("bookie-1", INFO)
    assert (await driver.bookies()).find("bookie-1") == INFO
    assert not registration.loss.is_set()


async def test_a_new_cluster_with_a_lost_answer_is_ours(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = await open_driver(uri)
    lose_responses(monkeypatch, session_of(driver), count=2)  # of the folder above, and of the transaction
    assert await driver.init_cluster() == await driver.instance_id()
    await driver.close()


async def test_changes_with_lost_answers_are_made_once(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    store, path = store_of(driver), f"{root}/mine"
    await store.change(Create(path), Create(f"{path}/gone"))
    attempts: list[list[Change]] = [
        [Create(f"{path}/a", b"x")],
        [Create(f"{path}/lease", b"x", ephemeral=True)],
        [Update(f"{path}/a", b"y", 0), Check(path, 0), Absent(f"{path}/b")],
        [Delete(f"{path}/gone"), Create(f"{path}/b"), Update(f"{path}/a", b"z", 1)],
        [Delete(f"{path}/lease"), Create(f"{path}/lease", b"new", ephemeral=True)],
    ]
    for changes in attempts:
        lose_responses(monkeypatch, store.session)
        await store.change(*changes)
        monkeypatch.undo()
        with pytest.raises(MetadataConflict):
            await store.change(*changes[:2], Absent(path))
    found = await store.get_many([f"{path}/{name}" for name in ("a", "b", "gone", "lease")])
    assert [(node.data, node.version) for node in found.values()] == [(b"z", 2), (b"", 0), (b"new", 0)]


async def test_a_failure_with_a_lost_answer_is_a_failure(
    driver: ClusterMetadata, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    store, path = store_of(driver), f"{root}/mine"
    await store.change(Create(path, b"x"), Create(f"{path}/theirs", b"x"))
    attempts: list[tuple[list[Change], type[MetadataConflict]]] = [
        ([Create(f"{path}/theirs", b"x", ephemeral=True)], ZnodeExists),
        ([Create(path, b"mine")], ZnodeExists),
        ([Update(path, b"y", 1)], ZnodeChanged),
        ([Check(path, 0), Update(f"{path}/none", b"", 0)], NoSuchZnode),
        ([Delete(path)], ZnodeNotEmpty),
    ]
    for changes, kind in attempts:
        lose_responses(monkeypatch, store.session)
        with pytest.raises(kind):
            await store.change(*changes)
        monkeypatch.undo()
