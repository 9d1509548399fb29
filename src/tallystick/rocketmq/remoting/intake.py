"""What connections sent becomes requests for some milliseconds of each turn of the loop, and a bounded number of them.

Thousands of connections may have a buffer full of small requests each, as after a pause. Those for which a turn has no
time stay bytes, which take a fraction of the memory of requests. Hosts and connections have a few of theirs made at a
time, who used least first (``runtime/turn_order.py``); one that waits is not read on, and neither read nor cut while
its requests are put off or its responses are not taken.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
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
    """Call ``received`` for each connection that got bytes, and ``turn`` in the next turn of the loop while ``due``.

    While nobody waits the turn's connections are served as they came. Their time is charged only when it was not enough
    for all: to keep account of turns that all had would take longer than to cut their requests.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order: TurnOrderCore[S] = TurnOrderCore()  # of those that wait
        self._fresh: dict[S, None] = {}  # those that came since the last turn
        self._share = _REQUESTS

    @property
    def due(self) -> bool:
        return bool(self._fresh or self._order)

    def share(self, sources: int) -> None:
        """Give each of so many ``sources`` fewer requests a turn, as all of them may be put off."""
        self._share = max(_REQUESTS_AT_ONCE, _REQUESTS // max(1, sources))

    def received(self, source: S) -> None:
        """A connection got bytes, which may have requests."""
        self._fresh[source] = None

    def discard(self, source: S) -> None:
        """A connection has ended."""
        self._fresh.pop(source, None)
        self._order.discard(source, source.host)

    def turn(self, ends: float) -> list[tuple[S, Command]]:
        """Returns the requests of one turn, in order for each connection; it is over at ``ends``. Connections that
        still wait are not read on."""
        fresh, self._fresh = self._fresh, {}
        turn: _Turn[S] = _Turn(self._clock, ends, self._share)
        if not self._order:
            self._serve_as_they_came(fresh, turn)
        else:
            self._let_wait(fresh)
        cpu = self._clock.cpu() if self._order else 0.0
        while self._order and turn.goes_on:
            source = self._order.pop()
            if turn.take(source):
                self._order.add(source, source.host)
            began, cpu = cpu, self._clock.cpu()
            self._order.spent(source if source.alive else None, source.host, cpu - began)
        self._let_wait(turn.with_full_share)
        if self._order:
            for source in (*fresh, *turn.with_full_share):
                if source in self._order:
                    source.wait()
        return turn.requests

    def _serve_as_they_came(self, fresh: Iterable[S], turn: _Turn[S]) -> None:
        sources, began = iter(fresh), self._clock.now()
        spans: list[tuple[S, float]] = []
        more: list[S] = []
        try:
            for source in sources:
                if turn.take(source):
                    more.append(source)
                spans.append((source, turn.now - began))
                began = turn.now
                if not turn.goes_on:
                    break
        finally:  # whatever happens, those that still wait have a turn
            self._let_wait(sources)
            self._let_wait(more)
        if self._order:
            for source, seconds in spans:
                self._order.spent(source if source.alive else None, source.host, seconds)

    def _let_wait(self, sources: Iterable[S]) -> None:
        for source in sources:
            if source.ready:  # else it has ended, or tells when it may go on
                self._order.add(source, source.host)


class _Turn(Generic[S]):
    """The requests of one turn, and whether it goes on. ``now`` is when the last connection had its turn."""

    __slots__ = ("_clock", "_counts", "_ends", "_left_bytes", "_share", "goes_on", "now", "requests", "with_full_share")

    def __init__(self, clock: Clock, ends: float, share: int) -> None:
        self.requests: list[tuple[S, Command]] = []
        self.with_full_share: list[S] = []  # these may have more
        self.goes_on, self.now = True, 0.0
        self._clock, self._ends, self._share = clock, ends, share
        self._counts: dict[S, int] = {}  # of those that may have more
        self._left_bytes = TURN_BYTES

    def take(self, source: S) -> bool:
        """Take some requests. Returns whether the connection may have more, and has not had its share."""
        requests, may_have_more = self.requests, False
        if source.ready:
            left_requests = TURN_REQUESTS - len(requests)
            commands = source.take(
                most=left_requests if left_requests < _REQUESTS_AT_ONCE else _REQUESTS_AT_ONCE,
                most_bytes=_BYTES_AT_ONCE,
            )
            for command in commands:
                requests.append((source, command))
                self._left_bytes -= len(command.body)
            if source.ready:
                count = self._counts[source] = self._counts.get(source, 0) + len(commands)
                may_have_more = count < self._share
                if not may_have_more:
                    self.with_full_share.append(source)
        self.now = self._clock.now()
        self.goes_on = len(requests) < TURN_REQUESTS and self._left_bytes > 0 and self.now < self._ends
        return may_have_more
