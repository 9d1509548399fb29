"""What connections sent becomes requests for some milliseconds of each turn of the loop, and a bounded number of them.

Thousands of connections may have a buffer full of small requests each, as after a pause. Those for which a turn has no
time stay bytes, which take a fraction of the memory of requests. Hosts and connections have a few of theirs made at a
time, who used least first (``runtime/turn_order.py``); one that waits is not read on, and neither read nor cut while
its requests are put off or its responses are not taken.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from tallystick.rocketmq.wire.remoting import Command
from tallystick.runtime.clock import Clock
from tallystick.runtime.turn_order import TurnOrderCore

TURN_REQUESTS = 1024
TURN_BYTES = 4 * 1024 * 1024  # of what waits, or the one request that is longer
_REQUESTS = 16 * 1024  # of all connections together that may be put off: each may have its share of them in a turn
_REQUESTS_AT_ONCE = 8  # of one connection, before the next one has its turn
_BYTES_AT_ONCE = 256 * 1024


class Source(Hashable, Protocol):
    """A connection, as this module uses it."""

    @property
    def host(self) -> str: ...

    @property
    def alive(self) -> bool:
        """Whether it has not ended; ``discard`` is called behind that, also within ``take``."""
        ...

    @property
    def ready(self) -> bool:
        """Whether ``take`` may return a request."""
        ...

    def take(self, *, most: int, most_bytes: int) -> list[Command]: ...

    def wait(self) -> None:
        """Read no more until ``take`` returned all that came."""
        ...


S = TypeVar("S", bound=Source)


class Intake(Generic[S]):
    """Call ``received`` for each connection that got bytes, and ``turn`` in the next turn of the loop while ``due``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order: TurnOrderCore[S] = TurnOrderCore()
        self._fresh: dict[S, None] = {}  # those that came since the last turn
        self._share = _REQUESTS

    @property
    def due(self) -> bool:
        return bool(self._order)

    def share(self, sources: int) -> None:
        """Give each of so many ``sources`` fewer requests a turn, as all of them may be put off."""
        self._share = max(_REQUESTS_AT_ONCE, _REQUESTS // max(1, sources))

    def received(self, source: S) -> None:
        """A connection got bytes, which may have requests."""
        self._order.add(source, source.host)
        self._fresh[source] = None

    def discard(self, source: S) -> None:
        """A connection has ended."""
        self._order.discard(source, source.host)

    def turn(self, ends: float) -> list[tuple[S, Command]]:
        """Returns the requests of one turn, in order for each connection; it is over at ``ends``. Connections that
        still wait are not read on."""
        requests: list[tuple[S, Command]] = []
        counts: dict[S, int] = {}
        with_full_share: list[S] = []
        left_bytes, cpu = TURN_BYTES, self._clock.cpu()
        while self._order and len(requests) < TURN_REQUESTS and left_bytes > 0:
            source = self._order.pop()
            if source.ready:  # else it has ended, or tells when it may go on
                commands = source.take(
                    most=min(_REQUESTS_AT_ONCE, TURN_REQUESTS - len(requests)), most_bytes=_BYTES_AT_ONCE
                )
                requests += [(source, command) for command in commands]
                left_bytes -= sum(len(command.body) for command in commands)
                counts[source] = counts.get(source, 0) + len(commands)
                if counts[source] >= self._share:
                    with_full_share.append(source)
                elif source.ready:
                    self.received(source)
            began, cpu = cpu, self._clock.cpu()
            self._order.spent(source if source.alive else None, source.host, cpu - began)
            if self._clock.now() >= ends:
                break
        for source in with_full_share:
            if source.ready:
                self.received(source)
        for source in self._fresh:
            if source in self._order:
                source.wait()
        self._fresh.clear()
        return requests
