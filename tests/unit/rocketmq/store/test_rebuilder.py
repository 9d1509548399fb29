"""The shell that rebuilds lost queues: it goes on, and what ends it is told."""

from __future__ import annotations

from typing import cast

from support.waiting import until
from tallystick.rocketmq.store.rebuilder import Rebuilder
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.worker import ThreadWorker


class Store:
    rebuilding = True

    def rebuild(self) -> list[Arrival]:
        return [Arrival("T", 0, 1, [])]


async def test_an_error_of_who_is_told_ends_the_store_too() -> None:
    failures: list[Exception] = []

    def rebuilt(arrivals: list[Arrival]) -> None:
        raise ZeroDivisionError("a bug")

    rebuilder = Rebuilder(
        cast("MessageStore", Store()), SystemClock(), ThreadWorker, rebuilt=rebuilt, failed=failures.append
    )
    rebuilder.start()
    await until(lambda: bool(failures))
    assert isinstance(failures[0], ZeroDivisionError)
    await rebuilder.close()
