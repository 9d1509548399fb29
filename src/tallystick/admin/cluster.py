"""A cluster as a whole: its metadata service, and its making."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver


@contextlib.asynccontextmanager
async def metadata(uri: str) -> AsyncIterator[MetadataDriver]:
    """The cluster's metadata service, closed at the end."""
    driver = await open_driver(uri)
    try:
        yield driver
    finally:
        await driver.close()


async def init(uri: str) -> str:
    """Make an empty cluster; its instance id. Raises UsageError where one exists: nothing is ever overwritten."""
    async with metadata(uri) as driver:
        return await driver.init_cluster()
