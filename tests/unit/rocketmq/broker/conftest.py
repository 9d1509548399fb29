"""A master and a slave of tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.table_peers import Master, Slave


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    master = Master()
    await master.start()
    yield master
    await master.stop()


@pytest.fixture
async def other() -> AsyncIterator[Master]:
    other = Master()
    await other.start()
    yield other
    await other.stop()


@pytest.fixture
async def slave() -> AsyncIterator[Slave]:
    slave = Slave()
    yield slave
    await slave.sync.close()
    await slave.client.close()
