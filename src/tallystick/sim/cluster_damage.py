"""What befalls one bookie of a simulated cluster for good: its disk, or who answers at its address.

An operator does what one does: a bookie with a new disk gets a new cookie, so it is another bookie with the same id,
or rejoins. One whose disk was put back from a copy rejoins, too. One whose address another bookie has comes back
elsewhere, with all that it had.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tallystick.bookkeeper.bookie.cookies import FILE as COOKIE
from tallystick.sim.cluster_hosts import BookieHost, ClusterWorld
from tallystick.sim.disk_content import DiskImage

AWAY_S = 6.0  # at most


class Damage:
    """``strike`` once. ``host_at`` makes a new bookie at an address."""

    def __init__(self, world: ClusterWorld, bookies: list[BookieHost], host_at: Callable[[str], BookieHost]) -> None:
        self._world, self._bookies, self._host_at = world, bookies, host_at
        self._random = random.Random(world.random.getrandbits(64))

    async def strike(self, at: float, what: str) -> None:
        await asyncio.sleep(at)
        host = self._random.choice(self._bookies)
        self._world.trace.note("strikes", what, host.id)
        if what == "rot":
            self._rot(host)
        elif what == "older disk":
            await self._age(host)
        elif what == "empty disk":
            await self._lose_disk(host)
        else:
            await self._move(host)

    def _rot(self, host: BookieHost) -> None:
        """Flip a bit of a file; the bookie notices when it reads it."""
        files = [path for path in host.disk.files() if not path.endswith("/" + COOKIE)]
        if files:
            path = self._random.choice(files)
            size = host.disk.size(path) or 0
            host.is_rotten = True
            host.disk.flip(path, self._random.randrange(size), self._random.randrange(8))
            self._world.judge.damaged(host.id, forgets=False)

    async def _age(self, host: BookieHost) -> None:
        image = host.disk.image()
        await asyncio.sleep(self._random.random() * AWAY_S)
        await self._exchange(host, image, rejoins=True)

    async def _lose_disk(self, host: BookieHost) -> None:
        await self._exchange(host, DiskImage(), rejoins=self._random.random() < 0.5)

    async def _exchange(self, host: BookieHost, image: DiskImage, *, rejoins: bool) -> None:
        """Start a bookie with another disk. One that rejoins never says that it did not have what it had."""
        host.lose_power()
        host.disk.become(image)
        host.is_down = True
        self._world.judge.damaged(host.id, forgets=not rejoins)
        await asyncio.sleep(self._random.random() * AWAY_S)
        driver = self._world.service.driver
        cookie_node = await driver.read_cookie(host.id)
        host.rejoins = rejoins and cookie_node is not None
        if not rejoins and cookie_node is not None:
            await driver.delete_cookie(host.id, cookie_node.version)
        host.is_down = False
        host.boot()

    async def _move(self, host: BookieHost) -> None:
        host.lose_power()
        address, host.address = host.address, f"10.0.2.{len(self._bookies) + 1}"
        other = self._host_at(address)
        await asyncio.sleep(self._random.random())
        other.boot()
        await asyncio.sleep(self._random.random() * AWAY_S)
        host.boot()
