"""Connections of the simulated HA port: in order, late, in any pieces; closed, reset, or silently dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tallystick.sim.world import World

WINDOW_BYTES = 2000  # what one side may have under way before it must wait


@dataclass(frozen=True)
class Weather:
    """How a network behaves in one run."""

    slow: float  # the probability that bytes take a heavy-tailed time
    cut: float  # of a reset, for each piece that is sent
    vanish: float  # of going silently dead instead
    calm: bool = False


class Side(Protocol):
    """One end of a connection."""

    def read(self, data: bytes) -> None: ...

    def writable(self) -> None: ...

    def lost(self) -> None: ...


class SimAlarm:
    """Rings at the time set, or before it."""

    def __init__(self, world: World, ring: Callable[[], None]) -> None:
        self._world, self._ring, self._at = world, ring, float("inf")

    def set(self, at: float | None) -> None:
        if at is not None and at < self._at:
            self._at = at
            self._world.after(max(0.0, at - self._world.now), self._rang, at)

    def _rang(self, at: float) -> None:
        if at == self._at:
            self._at = float("inf")
            self._ring()


class Pipe:
    """One direction."""

    def __init__(self, world: World, wire: Wire, reader: Side, writer: Side) -> None:
        self._world, self._wire, self._reader, self._writer = world, wire, reader, writer
        self._sent: deque[bytes] = deque()
        self._here = bytearray()
        self._at = 0.0  # when the last bytes sent arrive
        self.under_way = 0
        self.dead = False

    @property
    def full(self) -> bool:
        return self.under_way >= WINDOW_BYTES

    def send(self, data: bytes) -> None:
        if self.dead:
            return
        rng, weather = self._world.random, self._wire.weather()
        delay = rng.random() * 0.02
        if not weather.calm and self._world.chance(weather.slow):
            delay += rng.choice((0.1, 1.0, 8.0, 30.0)) * rng.random()
        self._at = max(self._at, self._world.now + delay)
        self.under_way += len(data)
        self._sent.append(data)
        self._world.after(self._at - self._world.now, self._arrive)
        if not weather.calm and self._world.chance(weather.cut):
            self._world.after(
                rng.random() * 0.05, self._wire.vanish if self._world.chance(weather.vanish) else self._wire.reset
            )

    def end(self) -> None:
        """The writer closed: the reader hears so behind all that was sent."""
        self._world.after(max(0.0, self._at - self._world.now) + 0.1, self._ended)

    def _ended(self) -> None:
        if not self.dead:
            self.dead = True
            self._reader.lost()

    def _arrive(self) -> None:
        if not self.dead:
            self._here += self._sent.popleft()  # in order, whatever rounding did to the times
            self._world.after(self._world.random.choice((0.0, 0.0, 0.01)), self._read)

    def _read(self) -> None:
        if self.dead or not self._here:
            return
        size = len(self._here)
        if self._world.chance(0.3):
            size = self._world.random.randint(1, size)
            self._world.after(0.001, self._read)
        piece = bytes(self._here[:size])
        del self._here[:size]
        self.under_way -= size
        self._reader.read(piece)
        if not self.dead:
            self._writer.writable()


class Wire:
    """Both directions."""

    def __init__(self, world: World, weather: Callable[[], Weather], master: Side, slave: Side) -> None:
        self._world, self.weather = world, weather
        self._sides = (master, slave)
        self.to_slave = Pipe(world, self, slave, master)
        self.to_master = Pipe(world, self, master, slave)

    def reset(self) -> None:
        """Both hear of it, soon."""
        if not (self.to_slave.dead and self.to_master.dead):
            self.vanish()
            for side in self._sides:
                self._world.after(self._world.random.random() * 0.2, side.lost)

    def vanish(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self.to_slave.dead = self.to_master.dead = True

    def close(self, mine: Pipe, theirs: Pipe) -> None:
        """One side ends it: what it sent arrives, what it is sent does not."""
        theirs.dead = True
        mine.end()
