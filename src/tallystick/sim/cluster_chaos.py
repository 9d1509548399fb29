"""What befalls the hosts of a simulated cluster, and how it is undone: each thing lasts a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tallystick.sim.cluster_hosts import BookieHost, ClientHost, World
from tallystick.sim.cluster_metadata import ADDRESS

LONGEST_S = 6.0
PLENTY = 1 << 40  # bytes of a disk
MAX_OPERATIONS = 60  # of a disk, until it stops in the middle of one


class Chaos:
    """``strike`` with the words of ``cluster_faults.CHAOS``; ``end`` undoes all that is left of it."""

    def __init__(self, world: World, bookies: Sequence[BookieHost], clients: Sequence[ClientHost]) -> None:
        """``clients`` may grow."""
        self._world, self._random, self._bookies, self._clients = world, world.random, bookies, clients
        self._ended = False

    async def strike(self, at: float, what: str) -> None:
        await asyncio.sleep(at)
        if self._ended:
            return
        lasts_s = self._random.random() * self._random.choice((0.2, LONGEST_S))
        if what.endswith("of a client"):
            undo = self._strike_client(what)
        else:
            host = self._random.choice(self._bookies)
            self._world.trace.note("strikes", what, host.id)
            undo = self._strike(what, host)
        await asyncio.sleep(lasts_s)
        undo()

    def _strike_client(self, what: str) -> Callable[[], None]:
        clients = [client for client in self._clients if client.process.alive]
        if not clients:
            return lambda: None
        client = self._random.choice(clients)
        self._world.trace.note("strikes", what, client.name, client.address)
        if what == "cut of a client":
            return self._cut(self._random.choice(("cut in", "cut out", "cut off")), client.address)
        client.process.pause()
        return client.process.go_on

    def _strike(self, what: str, host: BookieHost) -> Callable[[], None]:
        """Do it; what undoes it."""
        disk, fabric = host.disk, self._world.fabric
        if what == "kill":
            host.kill()
        elif what == "power loss":
            host.lose_power()
        elif what == "crash in an operation":
            disk.crash_at = disk.operations + self._random.randint(1, MAX_OPERATIONS)
        elif what == "full disk":
            usage = disk.usage("/")
            disk.capacity = usage.total - usage.free + self._random.choice((0, 0, 4096))
        elif what == "stop":
            host.stop()
        elif what == "pause":
            return self._pause(host)
        elif what == "reset":
            fabric.reset_all(host.address)
        else:
            return self._cut(what, host.address)
        return lambda: self._restore(host)

    def _restore(self, host: BookieHost) -> None:
        host.disk.capacity, host.disk.crash_at = PLENTY, None
        if host.process is not None:
            host.process.go_on()
        host.boot()

    def _pause(self, host: BookieHost) -> Callable[[], None]:
        process = host.process
        if process is None:
            return lambda: None
        process.pause()
        return process.go_on

    def _cut(self, what: str, address: str) -> Callable[[], None]:
        """Between this host and all others, or another one."""
        others = [bookie.address for bookie in self._bookies] + [client.address for client in self._clients] + [ADDRESS]
        others.remove(address)
        if self._random.random() < 0.5:
            others = [self._random.choice(others)]
        pairs = [(other, address) for other in others] if what != "cut out" else []
        pairs += [(address, other) for other in others] if what != "cut in" else []
        self._world.fabric.cut(pairs)
        return lambda: self._world.fabric.heal(pairs)

    def darken(self) -> None:
        """All bookies lose power now; they come back one after another."""
        fabric = self._world.fabric
        for host in self._bookies:
            host.lose_power()
            fabric.loop.call_later(self._random.random() * LONGEST_S, host.boot, context=fabric.context)

    def end(self) -> None:
        """Nothing stands in the way of anybody any more."""
        self._ended = True
        self._world.fabric.heal()
        for client in self._clients:
            client.process.go_on()
        for host in self._bookies:
            self._restore(host)
