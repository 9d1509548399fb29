"""The network between simulated hosts: delays, resets, cuts in one direction, windows, hosts without power.

Bytes of one direction of a connection arrive in order, in any pieces; connections overtake each other. A cut loses
nothing by itself: what was sent stays under way until the cut is healed (TCP sends it again), and nobody is told.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.runtime.network import ProtocolFactory
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.transport import End, SimTransport
from tallystick.sim.virtual.worker import LEAST_S

RETRY_S = 1.0  # how often a connect that is not answered is tried again
FIRST_PORT = 40_000  # of those that connect


@dataclass(frozen=True)
class LinkFaults:
    """Probabilities for each piece that is sent; times in seconds."""

    latency_s: float = 0.001  # at most
    slow: float = 0.0  # it takes a heavy-tailed time
    split: float = 0.1  # it is cut in two
    reset: float = 0.0  # the connection ends instead
    window_bytes: int = 64 * 1024
    buffer_bytes: int = 1 << 30  # a writer is paused at, at most, whatever it asked for


CALM = LinkFaults()


class Fabric:
    """The hosts and connections of one life. ``faults`` may change at any time."""

    def __init__(self, rng: random.Random, trace: Trace, faults: LinkFaults = CALM) -> None:
        self.random, self.trace, self.faults = rng, trace, faults
        self.loop = asyncio.get_running_loop()
        self.context: Context = copy_context()  # of no process
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._transports: dict[SimTransport, None] = {}  # of connections that have an end left
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._dark: dict[str, None] = {}
        self._next_port = FIRST_PORT
        self.on_write: Callable[[SimTransport, bytes], None] = lambda end, data: None  # settable: who hears everything

    # What goes wrong.

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let nothing arrive that the first host of a pair sends to the second, until ``heal``."""
        for source, target in pairs:
            self.trace.note("cut", source, target)
            self._cuts[source, target] += 1

    def heal(self, pairs: Iterable[tuple[str, str]] | None = None) -> None:
        """End these cuts, or all; who was cut off twice stays so as long as one of them lasts."""
        self._cuts = Counter() if pairs is None else self._cuts - Counter(pairs)
        self.trace.note("healed", *self._cuts)
        self._pass_held()

    def reset_all(self, address: str) -> None:
        """Reset all connections of a host."""
        for transport in tuple(self._transports):
            if transport.here[0] == address and not transport.is_over:
                self._reset(transport)

    def forget_all(self, address: str) -> None:
        """Forget the connections of a host, as a firewall does: nothing of them arrives, and nobody is told."""
        self.trace.note("forgotten", address)
        for transport in self._transports:
            if transport.here[0] == address:
                transport.forget()
                transport.peer.forget()

    def kill(self, process: Process) -> None:
        """The process dies; its kernel ends its connections."""
        self._die(process, tells=True)

    def power_off(self, process: Process) -> None:
        """Switch a host off without a word: peers learn it by its silence, or when it is on again."""
        self._dark[process.address] = None
        self._die(process, tells=False)

    def power_on(self, address: str) -> None:
        """Switch a host on, which knows nothing of its connections: who sent something is told so."""
        if address in self._dark:
            del self._dark[address]
            self._pass_held()

    def _die(self, process: Process, *, tells: bool) -> None:
        self.trace.note(process.name, "killed" if tells else "without power")
        process.die()
        for where, listener in tuple(self._listeners.items()):
            if listener.process is process:
                del self._listeners[where]
        for transport in tuple(self._transports):
            if transport.process is process:
                transport.process_died(tells=tells)

    def _pass_held(self) -> None:
        for transport in self._transports:
            self.loop.call_later(self.delay_s(), transport.pass_held, context=self.context)

    def delay_s(self) -> float:
        """Returns the delay of one piece."""
        if self.random.random() < self.faults.slow:
            return min(30.0, 0.02 * self.random.paretovariate(0.8))
        return LEAST_S + self.random.random() * self.faults.latency_s

    def ends(self) -> tuple[SimTransport, ...]:
        """Return the ends of connections that are not over, of living processes."""
        return tuple(end for end in self._transports if not end.is_over and end.process.alive)

    # Between hosts.

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts and target not in self._dark

    async def travel(self, source: str, target: str) -> None:
        """Wait until something that is sent again and again arrives."""
        await asyncio.sleep(self.delay_s())
        while not self.passes(source, target):  # noqa: ASYNC110  # TCP tries again at intervals, too
            await asyncio.sleep(RETRY_S)

    def network(self, process: Process) -> SimNetwork:
        """Returns the network as this process sees it."""
        return SimNetwork(self, process)

    def listening(self, address: str, port: int) -> SimListener | None:
        listener = self._listeners.get((address, port))
        return listener if listener is not None and listener.is_serving else None

    def is_bound(self, address: str, port: int) -> bool:
        return (address, port) in self._listeners

    def bind(self, listener: SimListener) -> None:
        if self.is_bound(*listener.where):
            raise OSError(errno.EADDRINUSE, "address already in use")
        self._listeners[listener.where] = listener

    def unbind(self, listener: SimListener) -> None:
        if self._listeners.get(listener.where) is listener:
            del self._listeners[listener.where]

    def new_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def join(self, near: Process, far: SimListener) -> tuple[SimTransport, SimTransport]:
        """The two ends of a new connection."""
        here, there = (near.address, self.new_port()), far.where
        ends = SimTransport(self, near, here, there), SimTransport(self, far.process, there, here)
        for end, other in (ends, ends[::-1]):
            end.peer = other
            self._transports[end] = None
        self.trace.note("connected", *here, *there)
        return ends

    # For transports (``Path``).

    @property
    def window_bytes(self) -> int:
        return self.faults.window_bytes

    @property
    def buffer_bytes(self) -> int:
        return self.faults.buffer_bytes

    def wrote(self, source: SimTransport, data: bytes) -> None:
        self.on_write(source, data)

    def send(self, source: SimTransport, data: bytes) -> None:
        if self.random.random() < self.faults.reset:
            self._reset(source)
            return
        if len(data) > 1 and self.random.random() < self.faults.split:
            place = self.random.randrange(1, len(data))
            self._arrive_later(source.peer, data[:place])
            data = data[place:]
        self._arrive_later(source.peer, data)

    def send_end(self, source: SimTransport, error: End) -> None:
        self._arrive_later(source.peer, (error,))

    def _reset(self, transport: SimTransport) -> None:
        self.trace.note("reset", *transport.here, *transport.there)
        for end in (transport, transport.peer):
            self._arrive_later(end, (ConnectionResetError("connection reset"),))

    def _arrive_later(self, target: SimTransport, data: bytes | tuple[End]) -> None:
        target.arrives_at = max(target.arrives_at + LEAST_S, self.loop.time() + self.delay_s())
        self.loop.call_at(target.arrives_at, self._arrive, target, data, context=self.context)

    def _arrive(self, target: SimTransport, data: bytes | tuple[End]) -> None:
        size = len(data) if isinstance(data, bytes) else data[0]
        self.trace.note("arrived", *target.there, *target.here, size)
        target.arrive(data)

    def soon(self, transport: SimTransport, callback: Callable[[], None]) -> None:
        self.loop.call_later(self.delay_s(), callback, context=transport.process.context)

    def is_cut(self, target: SimTransport) -> bool:
        return not self.passes(target.there[0], target.here[0])

    def transport_ended(self, transport: SimTransport) -> None:
        if transport.peer.is_over:  # else it may still have to say that nobody is there
            self._transports.pop(transport, None)
            self._transports.pop(transport.peer, None)


class SimListener:
    """A port of a process."""

    def __init__(self, fabric: Fabric, process: Process, port: int, factory: ProtocolFactory, serving: bool) -> None:
        self.process, self.factory, self.is_serving = process, factory, serving
        self.where = process.address, port
        self._fabric = fabric

    @property
    def address(self) -> tuple[str, int]:
        return self.where

    async def serve(self) -> None:
        self.is_serving = True

    async def close(self) -> None:
        self._fabric.unbind(self)


class SimReservation:
    """A port that was free."""

    def __init__(self, port: int) -> None:
        self.port = port

    def close(self) -> None:
        """Does nothing: nothing is held."""


class SimNetwork:
    """A ``runtime.network.Network``. Whatever name a process binds, its ports are at the address of its host."""

    def __init__(self, fabric: Fabric, process: Process) -> None:
        self._fabric, self._process = fabric, process

    async def connect(self, host: str, port: int, factory: ProtocolFactory, within_s: float) -> asyncio.Transport:
        fabric, here = self._fabric, self._process.address
        async with asyncio.timeout(within_s):
            await fabric.travel(here, host)
            listener = fabric.listening(host, port)
            if listener is None:
                await fabric.travel(host, here)
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {host}:{port}")
            near, far = fabric.join(self._process, listener)
            fabric.loop.call_soon(_accept, far, listener.factory, context=listener.process.context)
            try:
                await fabric.travel(host, here)
            except BaseException:
                near.abort()
                raise
        if near.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, "connection reset")
        near.attach(factory())
        return near

    def reserve(self, host: str, *offsets: int, port: int = 0, purpose: str = "") -> SimReservation:
        """Returns a free port; no other process of the host could take it."""
        first_port = port or self._fabric.new_port()
        for number in (first_port, *(first_port + offset for offset in offsets)):
            if self._fabric.is_bound(self._process.address, number):
                raise UsageError(f"cannot listen{purpose}: address already in use", host=host, port=number)
        return SimReservation(first_port)

    async def listen(self, host: str, port: int, factory: ProtocolFactory, *, serving: bool = True) -> SimListener:
        listener = SimListener(self._fabric, self._process, port or self._fabric.new_port(), factory, serving)
        self._fabric.bind(listener)
        return listener


def _accept(transport: SimTransport, factory: ProtocolFactory) -> None:
    if not transport.is_closing():
        transport.attach(factory())
