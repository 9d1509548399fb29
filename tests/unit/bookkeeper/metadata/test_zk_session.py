"""A session of ZooKeeper whose connection breaks under a request: kazoo's client is played by the test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState

from tallystick.bookkeeper.metadata import zk_session
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.bookkeeper.metadata.zk_session import ZkSession
from tallystick.bookkeeper.metadata.zookeeper import ZooKeeperStore
from tallystick.errors import MetadataUncertain


class Kazoo:
    """It is connected at once; the answers to its first transactions, as many as ``breaks``, are lost."""

    breaks = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.client_id, self.last_zxid, self.commits = (7, b""), 1, 0

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def start_async(self) -> None:
        self._listener(KazooState.CONNECTED)

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def transaction(self) -> SimpleNamespace:
        made = list[str]()

        def commit() -> SimpleNamespace:
            self.commits += 1
            error = ConnectionLoss() if self.commits <= self.breaks else None
            return SimpleNamespace(rawlink=lambda told: told(SimpleNamespace(exception=error, value=made)))

        return SimpleNamespace(create=lambda path, *_, **__: made.append(path), commit_async=commit)


@pytest.fixture
def kazoo(monkeypatch: pytest.MonkeyPatch) -> type[Kazoo]:
    class One(Kazoo): ...

    monkeypatch.setattr(zk_session, "KazooClient", One)
    return One


async def started() -> ZkSession:
    session = ZkSession(ZooKeeperUri((("zk", 2181),), "/ledgers"), 10.0)
    await session.start()
    return session


async def test_a_change_is_asked_for_again_when_the_connection_broke_under_it(kazoo: type[Kazoo]) -> None:
    kazoo.breaks = 2
    session = await started()
    await ZooKeeperStore(session).change(Create("/a"))
    client: Any = session._client
    assert client.commits == 3
    await session.close()


async def test_a_transaction_that_does_not_repeat_is_asked_for_once_and_tells_which_service_broke(
    kazoo: type[Kazoo],
) -> None:
    kazoo.breaks = 1
    session = await started()

    def fill(parts: Any) -> None:
        parts.create("/a")

    with pytest.raises(MetadataUncertain, match="broke before its answer") as caught:
        await session.transaction(fill, repeats=False)
    assert caught.value.fields["servers"] == "zk:2181"
    assert await session.transaction(fill, repeats=False) == (["/a"], False), "only the next one is asked for"
    await session.close()
