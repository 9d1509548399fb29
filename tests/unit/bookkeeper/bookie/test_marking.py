"""A bookie marks its ledgers in limbo for repair."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from support.waiting import until
from tallystick.bookkeeper.bookie import marking
from tallystick.bookkeeper.bookie.marking import LimboMarks
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.store import Create
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.errors import MetadataError, MetadataRefused, MetadataUnavailable
from tallystick.runtime.machine import this_machine


async def test_a_mark_that_nobody_can_read_hinders_no_mark_of_another_ledger() -> None:
    driver = ClusterMetadata(MemoryStore(uuid.uuid4().hex))
    await driver.init_cluster()
    tree = Underreplication(driver)
    await tree.prepare()
    await driver.store.change(Create("/ledgers/underreplication/ledgers/0000/0000/0000/0001/urL0000000001", b"damaged"))
    marks = asyncio.create_task(LimboMarks(driver, "b0", [1, 2], this_machine().clock).mark([1, 2]))

    async def is_marked() -> bool:
        return await tree.read_mark(2) is not None

    try:
        await until(is_marked)
    finally:
        marks.cancel()
        await asyncio.gather(marks, return_exceptions=True)
        await driver.close()


@pytest.mark.parametrize("failure", [MetadataUnavailable("away"), MetadataRefused("not this identity, now")])
async def test_a_mark_that_the_metadata_did_not_take_is_made_later(
    monkeypatch: pytest.MonkeyPatch, failure: MetadataError
) -> None:
    monkeypatch.setattr(marking, "RETRY_S", 0.0)
    driver = ClusterMetadata(MemoryStore(uuid.uuid4().hex))
    await driver.init_cluster()
    mark, failures = Underreplication.mark, [failure, failure]

    async def fails(tree: Underreplication, *arguments: Any) -> bool:
        if failures:
            raise failures.pop()
        return await mark(tree, *arguments)

    monkeypatch.setattr(Underreplication, "mark", fails)
    await LimboMarks(driver, "b0", [1], this_machine().clock).mark([1])
    assert not failures and await Underreplication(driver).read_mark(1) is not None
    await driver.close()
