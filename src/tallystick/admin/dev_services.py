"""What a development cluster asks the services that it runs: who is registered, and whether slaves follow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from tallystick.admin.dev_nodes import DevState, NodeKind
from tallystick.errors import MetadataError, TallyError

POLL_S = 0.02


async def ensure_metadata(uri: str) -> None:
    """Of the bookies: made where there is none."""
    from tallystick.bookkeeper.metadata.open import open_driver

    driver = await open_driver(uri)
    try:
        try:
            await driver.instance_id()
        except MetadataError:
            await driver.init_cluster()
    finally:
        await driver.close()


async def registered(state: DevState) -> dict[str, bool]:
    """Returns whether each node is registered; a node is left out where its service does not respond."""
    is_registered: dict[str, bool] = {}
    if bookies := state.of(NodeKind.BOOKIE):
        with contextlib.suppress(TallyError):
            registered_ids = await _registered_bookies(state.uri)
            is_registered |= {node.id: node.id in registered_ids for node in bookies}
    if (brokers := state.of(NodeKind.BROKER)) and state.name_server is not None:
        with contextlib.suppress(TallyError):
            registered_ids = await _registered_brokers(state.name_server)
            is_registered |= {node.id: node.id in registered_ids for node in brokers}
    return is_registered


async def _registered_bookies(uri: str) -> set[str]:
    from tallystick.bookkeeper.metadata.open import open_driver

    driver = await open_driver(uri)
    try:
        bookies = await driver.bookies()
        return {*bookies.writable, *bookies.read_only}
    finally:
        await driver.close()


async def _registered_brokers(name_server: str) -> set[str]:
    from tallystick.admin import brokers

    async with brokers.operator(name_server) as operator:
        return {process.id for process in await brokers.list_processes(operator)}


async def await_brokers(name_server: str, nodes: Collection[str], timeout_s: float) -> None:
    """Wait until brokers are registered, and the slaves among them in sync; give up after ``timeout_s``."""
    from tallystick.admin import brokers, ha

    with contextlib.suppress(TimeoutError):
        async with brokers.operator(name_server) as operator, asyncio.timeout(timeout_s):
            while True:
                processes = [one for one in await brokers.list_processes(operator) if one.id in nodes]
                slaves = {one.id for one in processes if not one.is_master}
                in_sync = {one.slave for one in await ha.ha_status(operator) if one.in_sync} if slaves else set()
                if len(processes) == len(nodes) and slaves <= in_sync:
                    return
                await asyncio.sleep(POLL_S)
