"""New numbers in ZooKeeper, when the answer to their nodes' creation is lost: with a session that a test plays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import NoNodeError

from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.zookeeper import ZooKeeperStore
from tallystick.errors import MetadataUnavailable, MetadataUncertain


class Session:
    """Its nodes are made; ``script`` says of each transaction what happens: None, or what is done before the answer to
    it is lost."""

    def __init__(self, *script: Callable[[Session], None] | None) -> None:
        self.nodes: dict[str, bytes] = {}
        self.servers, self.newest, self.ids, self.is_away = "stub", 0, [1], False
        self._script, self._numbers = list(script), 0
        self.fills: list[bool] = []  # whether each transaction may be repeated

    async def call(self, name: str, path: str, **_: Any) -> Any:
        if name == "create":
            self._numbers += 1
            return f"{path}{self._numbers - 1:010d}"
        if name == "get" and path in self.nodes:
            return self.nodes[path], SimpleNamespace(ephemeralOwner=0, version=0, czxid=1, ctime=1)
        raise NoNodeError

    def post(self, name: str, *arguments: Any) -> None: ...

    async def sync(self, path: str) -> int:
        if self.is_away:
            raise MetadataUnavailable("away", servers=self.servers)
        return 0

    async def transaction(self, fill: Callable[[Any], object], *, repeats: bool = True) -> tuple[list[Any], bool]:
        assert not repeats, "a second attempt would have the same number"
        made: dict[str, bytes] = {}
        fill(SimpleNamespace(create=lambda path, data=b"", **_: made.update({path: data})))
        step = self._script.pop(0) if self._script else None
        if step is None:
            self.nodes |= made
            return list(made), False
        if step is not unmade:
            self.nodes |= made
        step(self)
        raise MetadataUncertain("the response is lost")


def unmade(session: Session) -> None:
    """Nothing was made of it."""


def made(session: Session) -> None:
    """It was, and stays."""


def deleted(session: Session) -> None:
    """It was, and somebody found and deleted it."""
    session.nodes.clear()


def away(session: Session) -> None:
    session.is_away = True


async def next_number(session: Session) -> int | None:
    store = ZooKeeperStore(cast(Any, session))
    return await store.create_next("/ids", lambda number: [Create(f"/made-{number}"), Create(f"/note-{number}")])


async def test_a_number_whose_nodes_may_have_been_made_is_not_used_again() -> None:
    for lost in (unmade, deleted):
        session = Session(lost)
        assert await next_number(session) == 1 and sorted(session.nodes) == ["/made-1", "/note-1"]


async def test_nodes_that_were_made_are_found() -> None:
    session = Session(made)
    assert await next_number(session) == 0 and sorted(session.nodes) == ["/made-0", "/note-0"]


async def test_it_ends_when_all_answers_are_lost_or_nobody_can_tell() -> None:
    with pytest.raises(MetadataUncertain):
        await next_number(Session(unmade, unmade, unmade))
    with pytest.raises(MetadataUncertain, match="away") as caught:
        await next_number(Session(away))
    assert caught.value.fields["servers"] == "stub", "it says which service is away"
