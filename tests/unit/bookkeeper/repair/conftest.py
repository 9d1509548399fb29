"""Scripted bookies, a client that writes to them, and auditors and replicators beside it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from support.machines import REAL_TIME, VIRTUAL_TIME, LoopFactory
from support.repaired import RepairedCluster


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, LoopFactory]:
    return REAL_TIME if item.get_closest_marker("real_time") else VIRTUAL_TIME


@pytest.fixture
async def cluster() -> AsyncIterator[RepairedCluster]:
    made = await RepairedCluster().started(5)
    yield made
    await made.close()
    await asyncio.sleep(0)
