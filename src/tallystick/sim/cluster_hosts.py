"""The processes of a simulated cluster: whole bookies, each on a host with a disk of its own, and whole clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.ledger.client import BookKeeper
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.errors import CorruptRecord, DiskFull, MetadataError
from tallystick.runtime.events import Event, Events
from tallystick.runtime.outside import Outside
from tallystick.sim.cluster_judge import Judge
from tallystick.sim.cluster_metadata import SESSION_S, MetadataService
from tallystick.sim.disk import Crashed, SimDisk
from tallystick.sim.storage_model import SETTINGS
from tallystick.sim.virtual.loop import VirtualClock
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Loop, Process
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.worker import DelayWorker

PORT = 3181
RESTART_S = 1.0  # after a process ended by itself
CLIENT = ClientSettings(
    add_timeout_s=1.0, read_timeout_s=1.0, connect_timeout_s=1.0, max_inflight_bytes=8 * 1024,
    read_window_bytes=4 * 1024, speculative_read_s=0.3, quarantine_s=2.0, no_quorum_s=6.0,
)  # fmt: skip


class World:
    """What all processes of one run share."""

    def __init__(
        self, loop: Loop, rng: random.Random, trace: Trace, fabric: Fabric, service: MetadataService, judge: Judge
    ) -> None:
        self.loop, self.random, self.trace, self.fabric = loop, rng, trace, fabric
        self.service, self.judge = service, judge
        self.clock = VirtualClock(fabric.loop)

    def chance(self) -> random.Random:
        """For one process, which draws as much as it likes."""
        return random.Random(self.random.getrandbits(64))

    def events(self, name: str, *listeners: Callable[[Event], None]) -> Events:
        return Events(lambda event: self.trace.note(name, event), *listeners)


class _HostDisk(SimDisk):
    """A disk that takes its process with it when it stops in the middle of an operation."""

    def __init__(self, rng: random.Random, stopped: Callable[[], None]) -> None:
        super().__init__(rng)
        self._died = stopped

    def stop(self) -> NoReturn:
        self._died()  # what is left of the process never runs again, and the next one finds a disk that works
        raise Crashed(f"operation {self.operations}")


class BookieHost:
    """A machine with a disk on which one bookie lives, dies and lives again."""

    def __init__(self, world: World, number: int, sync_s: float, collect_s: float, address: str | None = None) -> None:
        self.id, self.address = f"b{number}", address or f"10.0.0.{number + 1}"
        self._world, self._sync_s, self._collect_s = world, sync_s, collect_s
        self.disk = _HostDisk(world.chance(), self.lose_power)
        self._boots = 0
        self.bookie: Bookie | None = None  # that answers
        self.process: Process | None = None
        self.workers: list[DelayWorker] = []  # of the process
        self.is_rotten = False  # a bit of its disk has flipped
        self.is_gone = False  # and so it does not start any more
        self.is_down = False  # it gets another disk

    @property
    def _settings(self) -> BookieSettings:
        return BookieSettings(
            f"memory://{self._world.service.name}", "/bookie/journal", "/bookie/ledgers", port=PORT, bookie_id=self.id,
            advertised_host=self.address, session_timeout_s=SESSION_S, gc_wait_s=self._collect_s,
        )  # fmt: skip

    def boot(self) -> None:
        """Start the bookie, unless it runs."""
        if self.process is not None or self.is_gone or self.is_down:
            return
        self._boots += 1
        self._world.fabric.power_on(self.address)
        self.workers = []
        process = self.process = Process(self._world.loop, f"{self.id}.{self._boots}", self.address)
        self._world.trace.note(process.name, "starts")
        process.start(self._run(process))

    def kill(self) -> None:
        """The process dies; what it wrote is in the page cache."""
        if (process := self._ended()) is not None:
            self._world.fabric.kill(process)
            self.disk.kill()

    def lose_power(self) -> None:
        """The machine dies; what it did not sync is lost, or not."""
        if (process := self._ended()) is not None:
            self._world.fabric.power_off(process)
            self.disk.power_loss()

    def _ended(self) -> Process | None:
        process, self.process, self.bookie = self.process, None, None
        return process

    def stop(self) -> None:
        """Ask the bookie to stop in order; it starts again a while later."""
        if self.process is not None and self.bookie is not None:
            bookie, self.bookie = self.bookie, None
            self.process.start(self._stop(self.process, bookie))

    async def _stop(self, process: Process, bookie: Bookie) -> None:
        await bookie.stop()
        self._exits(process)

    def _exits(self, process: Process) -> None:
        """The process is at its end; something starts it again."""
        if self.process is process:
            self.kill()
            loop, fabric = self._world.fabric.loop, self._world.fabric
            loop.call_later(RESTART_S, self.boot, context=fabric.context)

    async def _run(self, process: Process) -> None:
        world = self._world
        outside = Outside(
            world.fabric.network(process), self.disk, world.clock, world.events(process.name, self._heard),
            workers=lambda name: self._worker(process), random=world.chance(),
        )  # fmt: skip

        async def connect(uri: str, *, session_timeout_s: float) -> MetadataDriver:
            return world.service.connect(process)

        try:
            bookie = self.bookie = await start_bookie(self._settings, outside, SETTINGS, connect)
        except Exception as error:
            self._allow(process, error)
            return
        self._allow(process, await bookie.failure)

    def _worker(self, process: Process) -> DelayWorker:
        self.workers.append(DelayWorker(process, self._world.chance(), self._sync_s))
        return self.workers[-1]

    def _allow(self, process: Process, error: Exception) -> None:
        """A bookie may end for want of its metadata or of space, and for nothing else that happens here."""
        self._world.trace.note(process.name, "ends", repr(error))
        if self.is_rotten and isinstance(error, CorruptRecord):
            self.is_gone = True
            self._world.judge.damaged(self.id, forgets=False)  # what came after the bit had flipped is lost with it
        elif not isinstance(error, MetadataError | DiskFull):
            self._world.judge.fail("P9", f"{self.id} ended by itself: {error!r}")
        self._exits(process)

    def _heard(self, event: Event) -> None:
        if event.kind in ("ledgers deleted", "ledgers replaced") and self.bookie is not None:
            self._world.judge.collected(self.id, self.bookie.storage)


class ClientHost:
    """A machine on which one program uses the cluster."""

    def __init__(self, world: World, number: int, name: str) -> None:
        self._world, self.name, self.address = world, name, f"10.0.1.{number + 1}"
        self.process = Process(world.loop, name, self.address)

    def run(self, work: Callable[[BookKeeper], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a program with a client of its own, which it closes in the end."""
        return self.process.start(self._run(work))

    async def _run(self, work: Callable[[BookKeeper], Coroutine[Any, Any, None]]) -> None:
        world = self._world
        client = BookKeeper(
            world.service.connect(self.process), world.fabric.network(self.process), world.clock, world.chance(),
            CLIENT, world.events(self.name, world.judge.heard),
        )  # fmt: skip
        async with client:
            await work(client)

    def kill(self) -> None:
        if self.process.alive:
            self._world.fabric.kill(self.process)
