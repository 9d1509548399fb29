"""Wait until no other bookie is registered at the address where this one is about to serve.

Requests of version 2 do not say whom they are for. While a bookie that died is still registered, clients send its
requests to whoever listens at its address; an acknowledgement or a "no such entry" of another bookie would count as its
own, and an entry would be believed where it is not. Whoever has bound the port knows that the other one has left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.wire.values import BookieId
from tallystick.errors import MetadataConflict

Address = tuple[str, int]


async def wait_for_address(
    driver: MetadataDriver,
    bookie: BookieId,
    address: Address,
    timeout_s: float,
    waits: Callable[[list[BookieId]], None],
) -> None:
    """Return when no other bookie is registered at ``address``, as clients see it; ``waits`` hears of those that are.

    Raises MetadataConflict when one still is after ``timeout_s``: it keeps its registration up, so both were given the
    same address. Raises MetadataError.
    """
    change = asyncio.Event()
    watching = driver.watch_bookies(change.set)
    reported_bookies: list[BookieId] = []
    try:
        async with asyncio.timeout(timeout_s):
            await driver.sync()  # a server that lags may not list them yet
            while others := await _others(driver, bookie, address):
                if others != reported_bookies:
                    reported_bookies = others
                    waits(others)
                await change.wait()
                change.clear()
    except TimeoutError:
        raise MetadataConflict(
            "other bookies are registered at this address and keep their registrations up",
            bookie=bookie,
            others=",".join(reported_bookies),
            waited_s=timeout_s,
        ) from None
    finally:
        watching.cancel()


async def _others(driver: MetadataDriver, bookie: BookieId, address: Address) -> list[BookieId]:
    registered = await driver.bookies()
    bookies_by_id = {**registered.read_only, **registered.writable}
    return sorted(other for other, info in bookies_by_id.items() if other != bookie and info.address == address)
