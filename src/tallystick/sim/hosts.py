"""The machines of a simulated life: servers, each with a disk of its own, and whole clients."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from tallystick.errors import StorageError
from tallystick.runtime.events import Event, Events
from tallystick.runtime.outside import Outside
from tallystick.sim.disk import SimDisk
from tallystick.sim.failing_disk import DiskFailure
from tallystick.sim.virtual.loop import VirtualClock
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process, Timers
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.worker import DelayWorker

RESTART_S = 1.0  # after a process ended by itself


class World:
    """The parts that all processes of one life share."""

    def __init__(self, loop: Timers, rng: random.Random, trace: Trace, fabric: Fabric, sync_s: float) -> None:
        """``sync_s``: a sync of a disk takes, at most."""
        self.loop, self.random, self.trace, self.fabric, self.sync_s = loop, rng, trace, fabric, sync_s
        self.clock = VirtualClock(fabric.loop)

    def chance(self) -> random.Random:
        """Returns a source of chance for one process alone."""
        return random.Random(self.random.getrandbits(64))

    def events(self, name: str, *listeners: Callable[[Event], None]) -> Events:
        return Events(lambda event: self.trace.note(name, event), *listeners)


class Plan(Protocol):
    """The events of a life; ``sync_s``: a sync of a disk takes, at most."""

    @property
    def sync_s(self) -> float: ...


J = TypeVar("J")
P = TypeVar("P", bound=Plan)


class JudgedWorld(World, Generic[J, P]):
    """With the plan, and who judges it all."""

    def __init__(self, loop: Timers, *, rng: random.Random, trace: Trace, fabric: Fabric, judge: J, plan: P) -> None:
        super().__init__(loop, rng, trace, fabric, plan.sync_s)
        self.judge, self.plan = judge, plan


W = TypeVar("W", bound=World)
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class Host(ABC, Generic[W]):
    """A machine with a disk on which one server lives, dies and lives again."""

    disk_type: type[SimDisk] = SimDisk

    def __init__(self, world: W, id: str, address: str) -> None:
        self.id, self.address, self._world = id, address, world
        self.new_disk()
        self._boots = 0
        self.retired = False  # settable: it does not start
        self._disk_failures: list[DiskFailure] = []  # since the process began
        self.process: Process | None = None
        self.workers: list[DelayWorker] = []  # of the process

    def new_disk(self) -> None:
        """Give the machine, which is down, a disk without anything on it. A crash takes the process with it."""
        self.disk = self.disk_type(self._world.chance())
        self.disk.on_stop = self.lose_power

    def boot(self) -> None:
        """Start the server, unless it runs."""
        if self.process is not None or self.retired:
            return
        self._boots += 1
        self._disk_failures = [failure for failure in self._disk_failures if failure is self.disk.fault]
        self._world.fabric.power_on(self.address)
        self.workers = []
        process = self.process = Process(self._world.loop, f"{self.id}.{self._boots}", self.address)
        self._world.trace.note(process.name, "starts")
        process.start(self._run(process))

    def fail_disk(self) -> None:
        """Let the disk refuse some operations, until its ``fault`` is taken away."""
        self.disk.fault = failure = DiskFailure(self._world.chance())
        self._disk_failures.append(failure)

    def ends_by_its_disk(self, error: Exception) -> bool:
        """Returns whether a server may end with this error, because its disk has failed."""
        return isinstance(error, StorageError) and any(failure.happened for failure in self._disk_failures)

    def kill(self) -> None:
        """Let the process die; what it wrote is in the page cache."""
        if (process := self.process) is not None:
            self._forget()
            self._world.fabric.kill(process)
            self.disk.kill()

    def lose_power(self) -> None:
        """Let the machine die; what it did not sync is lost, kept or torn."""
        if (process := self.process) is not None:
            self._forget()
            self._world.fabric.power_off(process)
            self._lost_power()
            self.disk.power_loss()

    def stop(self) -> None:
        """Ask the server to stop in order; it starts again a while later."""
        if self.process is not None and self.answers:
            self.process.start(self._stop_and_exit(self.process))

    async def _stop_and_exit(self, process: Process) -> None:
        if self.answers:  # else it was asked twice
            await self._stop()
            self._exits(process)

    def _exits(self, process: Process) -> None:
        """The process has ended; start it again later."""
        if self.process is process:
            self.kill()
            loop, fabric = self._world.fabric.loop, self._world.fabric
            loop.call_later(RESTART_S, self.boot, context=fabric.context)

    def _outside(self, process: Process, *listeners: Callable[[Event], None]) -> Outside:
        """Returns the machine as a server of this process sees it."""
        world = self._world
        return Outside(
            world.fabric.network(process),
            self.disk,
            world.clock,
            world.events(process.name, *listeners),
            workers=lambda name: self._worker(process),
            random=world.chance(),
        )

    def _worker(self, process: Process) -> DelayWorker:
        self.workers.append(DelayWorker(process, self._world.chance(), self._world.sync_s))
        return self.workers[-1]

    # What a server is.

    @property
    @abstractmethod
    def answers(self) -> bool: ...

    @abstractmethod
    async def _run(self, process: Process) -> None: ...

    @abstractmethod
    async def _stop(self) -> None: ...

    def _forget(self) -> None:
        """The process dies."""
        self.process = None

    def _lost_power(self) -> None:  # of most servers there is nothing to do
        """Its machine did not keep what was not synced."""


def client_address(number: int) -> str:
    return f"10.0.1.{number + 1}"


class ClientHost(ABC, Generic[W, C]):
    """A machine on which one program uses the servers."""

    def __init__(self, world: W, number: int, name: str) -> None:
        self._world, self.name, self.address = world, name, client_address(number)
        self.process = Process(world.loop, name, self.address)
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # it was killed

    @abstractmethod
    def _client(self) -> C: ...

    def run(self, work: Callable[[C], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a program with a client of its own, which it closes in the end."""
        return self.process.start(self._run(work))

    async def _run(self, work: Callable[[C], Coroutine[Any, Any, None]]) -> None:
        client = self._client()
        async with client:
            await work(client)

    def outside(self, *listeners: Callable[[Event], None]) -> Outside:
        """Returns the machine as a client of this process sees it."""
        world = self._world
        return Outside(
            world.fabric.network(self.process),
            SimDisk(random.Random(0)),
            world.clock,  # clients keep nothing on it
            world.events(self.name, *listeners),
            workers=lambda name: DelayWorker(self.process, random.Random(f"{self.name} {name}"), world.sync_s),
            random=world.chance(),
        )

    def kill(self) -> None:
        if self.process.alive:
            self._world.fabric.kill(self.process)
            self.death.set_result(None)
