"""Requests that are served one after another, for some milliseconds of each turn of the loop.

A peer can put thousands of requests into one read. Those for which a turn has no time wait for the next one: hosts and
their peers have one served at a time, who used least first (``runtime/turn_order.py``), each in the order in which it
sent them. While one of a peer's waits, no more is read from it; while the peer does not take its responses, none of its
requests is served. So what it makes a server hold is bounded by what one read brings, and by what one turn answers.

While some wait, the turn's time is theirs: what comes waits behind them. Else a turn had the time twice, for those that
come and for those that wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire.remoting import Command, held_bytes
from tallystick.runtime.clock import Clock
from tallystick.runtime.turn_order import TurnOrderCore
from tallystick.runtime.turn_time import TurnTime

TURN_S = 0.01
FULL_S = 0.05  # how often peers that do not take their responses are looked at, where no other peer waits
BYTE_S = 2e-9  # that a byte of a request takes later, when its message is stored
_REQUEST_BYTES = 512  # that a request takes beside its content


class Backlog:
    """Give the requests of a turn to ``received``; ``close`` it. Must be made on a running loop."""

    def __init__(
        self,
        clock: Clock,
        serve: Callable[[Link, Command], None],
        begin: Callable[[], None] = lambda: None,
        *,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """``begin()`` comes before the first request of each turn, ``end()`` behind the last. Neither raises."""
        self._clock, self._serve, self._begin, self._end = clock, serve, begin, end
        self._loop = asyncio.get_running_loop()
        self._turn_time = TurnTime.of(self._loop)
        self._late: dict[Link, deque[tuple[Command, int]]] = {}  # with the bytes that each takes
        self._order: TurnOrderCore[Link] = TurnOrderCore()  # of these, but for
        self._full: dict[Link, None] = {}  # those whose peers take no responses
        self._handle: asyncio.Handle | None = None
        self._cpu = 0.0  # when the last of those that wait was served
        self._turn_is_next = False  # in the next turn of the loop those that wait are served

    def __len__(self) -> int:
        return sum(map(len, self._late.values()))

    def received(self, requests: Iterable[tuple[Link, Command]]) -> None:
        """Serve requests while there is time, and none waits; earlier ones of the same peer go first."""
        if self._turn_is_next:
            for link, command in requests:
                self._put_off(link, command)
            return
        self._begin()
        ends, is_late = self._ends(), False
        for link, command in requests:
            if link in self._late or self._clock.now() >= ends:
                is_late = is_late or link not in self._late
                self._put_off(link, command)
            else:
                self._serve(link, command)
        self._end()
        if is_late or self._handle is None:
            self._continue_later()

    def closed(self, link: Link) -> None:
        """A peer has gone: drop its requests, as nobody waits for the responses."""
        self._late.pop(link, None)
        self._full.pop(link, None)
        self._order.discard(link, link.host)

    def close(self) -> None:
        """Drop the requests that wait."""
        if self._handle is not None:
            self._handle.cancel()
        self._late.clear()
        self._full.clear()
        self._order.clear()

    def _ends(self) -> float:
        """Returns when what begins now must end in this turn."""
        return self._turn_time.ends(self._clock.now(), TURN_S)

    def _put_off(self, link: Link, command: Command) -> None:
        size = held_bytes(command) + _REQUEST_BYTES
        self._late.setdefault(link, deque()).append((command, size))
        self._order.add(link, link.host)
        link.keep(size)
        link.busy(+1)

    def _continue_later(self) -> None:
        if self._late:
            if self._handle is not None:  # it pauses for peers that take no responses, and others wait now
                self._handle.cancel()
            self._turn_is_next = bool(self._order)
            self._handle = (
                self._loop.call_soon(self._turn) if self._order else self._loop.call_later(FULL_S, self._turn)
            )

    def _turn(self) -> None:
        self._handle, self._turn_is_next = None, False
        self._begin()
        ends = self._ends()
        self._look_at_full()
        self._cpu = self._clock.cpu()
        while self._order and self._clock.now() < ends:
            link = self._order.pop()
            if link.full and link.alive:
                self._full[link] = None
            else:
                self._serve_next(link)
        self._end()
        self._continue_later()

    def _look_at_full(self) -> None:
        """Let those have turns again whose peers take responses. A turn for each of thousands, to find that its peer
        takes none, would be all that there is time for."""
        for link in [link for link in self._full if not link.full or not link.alive]:
            del self._full[link]
            self._order.add(link, link.host)

    def _serve_next(self, link: Link) -> None:
        """Serve a request of the peer whose turn it is."""
        commands = self._late[link]
        command, size = commands.popleft()
        if commands and link.alive:
            self._order.add(link, link.host)
        else:
            del self._late[link]
        link.keep(-size)
        link.busy(-1)
        if link.alive:
            self._serve(link, command)
            began, self._cpu = self._cpu, self._clock.cpu()
            took_s = self._cpu - began + len(command.body) * BYTE_S
            self._order.spent(link if link.alive else None, link.host, took_s)
