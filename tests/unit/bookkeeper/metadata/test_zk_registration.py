"""What a registration does when nobody can keep it up; the rest is tested with real servers (tests/conformance)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from support.waiting import until
from tallystick.errors import MetadataUncertain

pytest.importorskip("kazoo")

from tallystick.bookkeeper.metadata.uri import ZooKeeperUri
from tallystick.bookkeeper.metadata.zk_registration import ZkRegistration
from tallystick.bookkeeper.metadata.zk_session import ZkSession


class Session:
    """Answers that the node is ours, or fails as it is told to."""

    ids = (7,)

    def __init__(self) -> None:
        self.fails: Exception | None = None
        self.looked = self.again = 0
        self.changed: Callable[[], None] = lambda: None
        self.cancelled = False

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        self.looked += 1
        if self.fails is not None:
            raise self.fails
        return type("Stat", (), {"ephemeralOwner": 7})

    def watch_node(self, path: str, changed: Callable[[], None], *, at_once: bool = False) -> Any:
        self.changed = changed
        return type("Watch", (), {"cancel": lambda: setattr(self, "cancelled", True)})

    def later(self, function: Callable[[], None]) -> None:
        self.again += 1
        self.fails = None
        asyncio.get_running_loop().call_soon(function)


async def test_a_registration_is_reached_while_its_session_has_a_server() -> None:
    session = ZkSession(ZooKeeperUri((("127.0.0.1", 1),), "/ledgers"), 1.0)  # never started
    registration = ZkRegistration(session, "/available", "b:1", b"", False)
    for state, reached in ((7, True), (None, False), (7, True)):
        session._state_changed(state)
        assert registration.is_reached is reached


def kept(session: Session) -> ZkRegistration:
    registration = ZkRegistration(cast("ZkSession", session), "/available", "b:1", b"", False)
    registration.keep()
    return registration


async def test_metadata_that_do_not_answer_are_asked_again() -> None:
    session = Session()
    registration = kept(session)
    session.fails = MetadataUncertain("away")
    session.changed()
    await until(lambda: session.again == 1 and session.looked > 2)
    assert not registration.lost.is_set()


async def test_a_look_that_dies_ends_the_bookie_with_its_reason() -> None:
    session = Session()
    registration = kept(session)
    session.fails = ZeroDivisionError("a bug")
    session.changed()
    await registration.lost.wait()
    assert registration.failure is session.fails
    assert session.cancelled
