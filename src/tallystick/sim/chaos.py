"""What befalls the machines of a simulated life, and how it is undone: each thing lasts a while."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tallystick.sim.disk import PLENTY
from tallystick.sim.failing_disk import FAILING_DISK
from tallystick.sim.hosts import ClientHost, Host, World

LONGEST_S = 6.0
MAX_OPERATIONS = 60  # of a disk, until it stops in the middle of one


class Chaos(ABC):
    """``strike`` with the words of a plan; ``end`` undoes all that is left of it."""

    services: tuple[str, ...] = ()  # addresses that may be cut off, and have no host

    def __init__(
        self,
        world: World,
        servers: Sequence[Host[Any]],
        clients: Sequence[ClientHost[Any, Any]],
        longest_s: float = LONGEST_S,
    ) -> None:
        """``servers`` and ``clients`` may grow. A fault lasts ``longest_s`` at most."""
        self._world, self._random, self._servers, self._clients = world, world.random, servers, clients
        self._is_over, self._longest_s = False, longest_s

    async def strike(self, at: float, what: str) -> None:
        await asyncio.sleep(at)
        if self._is_over:
            return
        lasts_s, undo = self._begin(what)
        await asyncio.sleep(lasts_s)
        undo()

    @abstractmethod
    def _begin(self, what: str) -> tuple[float, Callable[[], None]]:
        """Begin a fault somewhere. Returns how long it lasts, and what undoes it."""

    def _lasts_s(self) -> float:
        return self._random.random() * self._random.choice((0.2, self._longest_s))

    def _strike(self, what: str, host: Host[Any]) -> Callable[[], None]:
        """Begin a fault at a server. Returns what undoes it."""
        disk, fabric = host.disk, self._world.fabric
        self._world.trace.note("strikes", what, host.id)
        if what == "kill":
            host.kill()
        elif what == "power loss":
            host.lose_power()
        elif what == "crash in an operation":
            disk.crash_at = disk.operations + self._random.randint(1, MAX_OPERATIONS)
        elif what == "full disk":
            usage = disk.usage("/")
            disk.capacity = usage.total - usage.free + self._random.choice((0, 0, 4096))
        elif what == FAILING_DISK:
            host.fail_disk()
        elif what == "stop":
            host.stop()
        elif what == "pause":
            return self._pause(host)
        elif what == "reset":
            fabric.reset_all(host.address)
        else:
            return self._cut(what, host.address)
        return lambda: self._restore(host)

    def _restore(self, host: Host[Any]) -> None:
        host.disk.capacity, host.disk.crash_at, host.disk.fault = PLENTY, None, None
        if host.process is not None:
            host.process.go_on()
        host.boot()

    def _pause(self, host: Host[Any]) -> Callable[[], None]:
        process = host.process
        if process is None:
            return lambda: None
        process.pause()
        return process.go_on

    def _cut(self, what: str, address: str) -> Callable[[], None]:
        """Cut this host off from all others, or from another one."""
        others = [server.address for server in self._servers] + [client.address for client in self._clients]
        others += self.services
        others.remove(address)
        if self._random.random() < 0.5:
            others = [self._random.choice(others)]
        pairs = [(other, address) for other in others] if what != "cut out" else []
        pairs += [(address, other) for other in others] if what != "cut in" else []
        self._world.fabric.cut(pairs)
        return lambda: self._world.fabric.heal(pairs)

    def darken(self) -> None:
        """Take the power from all servers that store something; they start again one after another."""
        fabric = self._world.fabric
        for host in self._keepers():
            host.lose_power()
            fabric.loop.call_later(self._random.random() * LONGEST_S, host.boot, context=fabric.context)

    def _keepers(self) -> Sequence[Host[Any]]:
        return self._servers

    def end(self) -> None:
        """End all faults."""
        self._is_over = True
        self._world.fabric.heal()
        for client in self._clients:
            client.process.go_on()
        for host in self._servers:
            self._restore(host)
