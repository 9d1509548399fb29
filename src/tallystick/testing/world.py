"""What the nodes of one test cluster share: time, network, metadata, and the real ports of an ordinary loop.

On a ``VirtualLoop`` processes are those of the simulator: who is dead or paused runs nothing. An ordinary loop runs
every callback, so there a dead process is one whose tasks are cancelled, whose connections have ended and whose disk is
gone from under it; a paused one hears and says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar, cast

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.store import Creation
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.errors import UsageError
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.events import Event, Events
from tallystick.sim.cluster_metadata import MetadataFaults, MetadataService
from tallystick.sim.disk import Crashed
from tallystick.sim.virtual.loop import VirtualClock, VirtualLoop
from tallystick.sim.virtual.network import Fabric, LinkFaults
from tallystick.sim.virtual.process import PROCESS, Process, Timers
from tallystick.sim.virtual.trace import Trace
from tallystick.testing.ports import RealPort

T = TypeVar("T")
Listener = Callable[[str, Event], None]  # hears of a node's events

SESSION_S = 4.0  # how long a registration outlives its process
_numbers = itertools.count()


class InProcessWorld:
    """See the module. ``open`` and ``close`` it; ``uri`` names its metadata once it is open."""

    def __init__(self, seed: int, listener: Listener | None) -> None:
        loop = asyncio.get_running_loop()
        self.is_virtual = isinstance(loop, VirtualLoop)
        self._random, self._listener = random.Random(seed), listener
        self._tasks = None if isinstance(loop, VirtualLoop) else ProcessTasks.of(loop)
        self.loop: Timers = self._tasks or cast("VirtualLoop", loop)
        self.clock: Clock = VirtualClock(loop) if self.is_virtual else SystemClock()
        self.trace = Trace(loop.time)
        self.fabric = Fabric(self.chance(), self.trace)
        self.delay(0.001 if self.is_virtual else 0.0)
        # A network of its own for each cluster of this machine: 127.x.y.0/24.
        random_bytes = os.urandom(2)
        self._network = "10.0.0" if self.is_virtual else f"127.{1 + random_bytes[0] % 254}.{random_bytes[1]}"
        self.clients = Process(self.loop, "clients", self.address(250))
        self.hosts: list[str] = []  # addresses of nodes
        self._isolated: dict[str, list[tuple[str, str]]] = {}
        self._ports: list[RealPort] = []
        self._service: MetadataService | None = None
        self._closing: list[asyncio.Task[None]] = []
        self.uri = ""

    def address(self, number: int) -> str:
        return f"{self._network}.{number}"

    def chance(self) -> random.Random:
        """For one part, which draws as much as it likes."""
        return random.Random(self._random.getrandbits(64))

    def events(self, name: str) -> Events:
        listener = self._listener
        return Events() if listener is None else Events(lambda event: listener(name, event))

    def delay(self, seconds: float) -> None:
        """Each piece of each connection takes up to so long from now on."""
        self.fabric.faults = LinkFaults(latency_s=seconds)

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        """Make the metadata. What was made is undone by ``stack``."""
        if self._tasks is not None:
            self._tasks.open()
            stack.callback(self._tasks.close)
        if self.is_virtual:
            name = f"testing-{next(_numbers)}"
            self.uri, nobody = f"memory://{name}", _Nobody()
            self._service = MetadataService(self.fabric, self.chance(), name, MetadataFaults(), nobody)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tally-testing-"))
            self.uri = f"sqlite://{folder}/metadata.db"
        stack.push_async_callback(self._close)  # before the folder goes: a session that lives makes its lease again
        driver = await self.connect(self.clients)
        try:
            await driver.init_cluster()
        finally:
            await driver.close()

    async def connect(self, process: Process) -> MetadataDriver:
        """The metadata, as this process sees it: its session ends some time after it."""
        if self._service is not None:
            return self._service.connect(process)
        driver = await open_driver(self.uri, session_timeout_s=SESSION_S)
        process.on_death.append(lambda: self._closing.append(self._outside(driver.close())))
        return driver

    async def listen(self, address: str, *ports: int) -> None:
        """Let others than our own clients reach these ports of a node. Raises UsageError."""
        if self.is_virtual:
            return
        for port in ports:
            try:
                self._ports.append(await RealPort.open(self.fabric.network(self.clients), address, port))
            except OSError as error:
                raise UsageError(f"cannot listen: {error.strerror}", host=address, port=port) from error

    def isolate(self, address: str) -> None:
        """Nothing comes to this host or from it, until it may ``join`` again."""
        others = [*(node for node in self.hosts if node != address), self.clients.address]
        self._isolated[address] = [pair for other in others for pair in ((address, other), (other, address))]
        self.fabric.cut(self._isolated[address])

    def join(self, address: str) -> None:
        """Cuts of this host are healed, too."""
        self.fabric.heal(self._isolated.pop(address, ()))

    def heal(self) -> None:
        """All cuts, but hosts stay isolated."""
        self.fabric.heal()
        for pairs in self._isolated.values():
            self.fabric.cut(pairs)

    def kill(self, process: Process) -> None:
        self.fabric.kill(process)
        self._end_tasks(process)

    def power_off(self, process: Process) -> None:
        self.fabric.power_off(process)
        self._end_tasks(process)

    def _end_tasks(self, process: Process) -> None:
        if self._tasks is not None:
            self._tasks.cancel(process)

    def _outside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in no process."""
        return asyncio.get_running_loop().create_task(work, context=self.fabric.context.copy())

    async def _close(self) -> None:
        for port in self._ports:
            port.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._tasks is not None:
            await self._tasks.ended()
        if self._service is not None:
            self._service.end()


class ProcessTasks:
    """What processes need of an ordinary loop. The last ``close`` puts the loop back as the first ``open`` found it."""

    _of_loops: ClassVar[dict[asyncio.AbstractEventLoop, ProcessTasks]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """One for each loop: see ``of``."""
        self._loop, self._users = loop, 0
        self._tasks: dict[Process, set[asyncio.Task[Any]]] = {}
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._factory, self._handler = loop.get_task_factory(), loop.get_exception_handler()

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> ProcessTasks:
        """Those that are open, or ones to open."""
        return cls._of_loops.get(loop) or cls(loop)

    def open(self) -> None:
        self._users += 1
        if self._users == 1:
            self._of_loops[self._loop] = self
            self._loop.set_task_factory(self._make)
            self._loop.set_exception_handler(self._on_failure)

    def run_again(self, handle: asyncio.Handle) -> None:
        raise AssertionError("only a virtual loop keeps what was due")

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        return self._loop.create_task(coro, context=context)

    def cancel(self, process: Process) -> None:
        """The process is dead: what it has begun ends."""
        for task in self._tasks.pop(process, set()):
            self._cancelled.add(task)
            task.add_done_callback(self._cancelled.discard)
            task.cancel()

    async def ended(self) -> None:
        """Wait for what was cancelled."""
        await asyncio.gather(*self._cancelled, return_exceptions=True)

    def close(self) -> None:
        self._users -= 1
        if not self._users:
            del self._of_loops[self._loop]
            self._loop.set_task_factory(self._factory)
            self._loop.set_exception_handler(self._handler)

    def _make(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        make: Callable[..., Any] = self._factory or _new_task
        task: asyncio.Task[Any] = make(loop, work, **options)
        context = options.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            of_process = self._tasks.setdefault(process, set())
            of_process.add(task)
            task.add_done_callback(of_process.discard)
        return task

    def _on_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a dead process does to its disk fails, and is nobody's error."""
        if isinstance(context.get("exception"), Crashed):
            return
        if self._handler is not None:
            self._handler(loop, context)
        else:
            loop.default_exception_handler(context)


def _new_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


class _Nobody:
    """Watches no ledger."""

    def made(self, ledger: LedgerId, metadata: LedgerMetadata, creation: Creation) -> None: ...

    def stored(self, ledger: LedgerId, metadata: LedgerMetadata | None) -> None: ...
