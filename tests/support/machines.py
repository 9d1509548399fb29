"""Machines for tests: on a virtual loop of its network and time, on an ordinary loop this one."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from tallystick.runtime.events import Events
from tallystick.runtime.machine import this_machine
from tallystick.runtime.network import Network
from tallystick.runtime.outside import Outside
from tallystick.sim.virtual.loop import VirtualClock, VirtualLoop
from tallystick.sim.virtual.network import Fabric, LinkFaults
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace
from tallystick.sim.virtual.worker import DelayWorker


def virtual_loop() -> VirtualLoop:
    """Return a loop on which a test that waits takes no time, and which nothing that the machine does slows down."""
    return VirtualLoop(max_seconds=24 * 3600.0, max_turns=20_000_000)


WHOLE = LinkFaults(split=0.0)  # what is written at once arrives at once
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
REAL_TIME: Mapping[str, LoopFactory] = {"real": asyncio.new_event_loop}  # for pytest_asyncio_loop_factories
VIRTUAL_TIME: Mapping[str, LoopFactory] = {"virtual": virtual_loop}


@dataclass
class _House:
    """What machines of one virtual loop share."""

    fabric: Fabric
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


_HOUSES: WeakKeyDictionary[asyncio.AbstractEventLoop, _House] = WeakKeyDictionary()


def machine(events: Events | None = None, **instead: Any) -> Outside:
    """Return a machine for one server or client of the running loop, with other parts where they are given.

    On a virtual loop it has an address of its own.
    """
    loop = asyncio.get_running_loop()
    outside = replace(this_machine(events), **instead)
    if not isinstance(loop, VirtualLoop):
        return outside
    if loop not in _HOUSES:
        _HOUSES[loop] = _House(Fabric(random.Random(1), Trace(loop.time), WHOLE))
    house = _HOUSES[loop]
    number = next(house.numbers)
    process = Process(loop, f"machine {number}", f"10.0.{number // 250}.{number % 250 + 1}")
    parts: dict[str, Any] = {
        "network": house.fabric.network(process),
        "clock": VirtualClock(loop),
        "random": random.Random(number),
        "workers": lambda name: DelayWorker(process, random.Random(number), 0.0),
    }
    return replace(outside, **(parts | instead))


async def connection(
    host: str, port: int, network: Network | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As ``asyncio.open_connection``, over the network of a machine; without one, from a machine of its own."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await (network or machine().network).connect(host, port, lambda: protocol, 10.0)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
