"""The metadata service of simulated streams: one tree, its sessions, and requests that are late or lost.

Unlike the service of clusters (``cluster_metadata.py``), which loses whole calls of a driver, this one stands below the
real driver and loses single requests of its store: connections break, sessions expire while their process is paused,
dead or cut off, and a server may lag behind the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tallystick.bookkeeper.metadata.store import Owner
from tallystick.runtime.clock import Clock
from tallystick.sim.past_tree import Moment, PastTree
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process

T = TypeVar("T")

ADDRESS = "10.0.0.250"
BEATS = 4  # of a session, in its time
BREAK_S = 0.5  # in which a client notices that its connection broke


@dataclass(frozen=True)
class StoreFaults:
    """Probabilities for each request; a server lags ``longest_lag_s`` at most."""

    lose_request: float = 0.0
    lose_response: float = 0.0
    slow: float = 0.0
    longest_lag_s: float = 0.0


class ConnectionLost(Exception):
    """Nobody knows what became of a request."""


class SessionExpired(Exception):
    """The service did nothing: it has forgotten the session."""


class SessionUser(Protocol):
    """Hears of its session, in its process."""

    def heard(self, *, owes: bool) -> None:
        """The service has answered. ``owes``: it could not tell of all changes."""
        ...

    def unheard(self) -> None:
        """The service did not answer when it should have."""
        ...


class StoreService:
    """One service. ``faults`` may change at any time."""

    def __init__(self, fabric: Fabric, rng: random.Random, faults: StoreFaults, clock: Clock) -> None:
        self.fabric, self.random, self.faults, self.clock = fabric, rng, faults, clock
        self.tree = PastTree(clock)
        self.sessions: list[Session] = []  # that are not over

    def begin(self, process: Process, timeout_s: float, user: SessionUser) -> Session:
        self.tree.owners += 1
        session = Session(self, str(self.tree.owners), process, timeout_s, user)
        self.sessions.append(session)
        return session

    def delay_s(self) -> float:
        if self.random.random() < self.faults.slow:
            return min(3.0, 0.02 * self.random.paretovariate(0.8))
        return 0.0002 + 0.002 * self.random.random()

    def reaches(self, process: Process) -> bool:
        """Returns whether a process and the service hear each other."""
        passes, where = self.fabric.passes, process.address
        return process.alive and not process.paused and passes(where, ADDRESS) and passes(ADDRESS, where)

    def request(self, session: Session, serve: Callable[[], T], response: asyncio.Future[T]) -> None:
        """Have the service do something, whatever becomes of the session's process meanwhile."""
        loop, context = self.fabric.loop, session.process.context
        if not self.fabric.passes(session.process.address, ADDRESS):
            return
        if self.random.random() < self.faults.lose_request:
            loop.call_later(BREAK_S * self.random.random(), _respond, response, None, ConnectionLost(), context=context)
            return
        loop.call_later(self.delay_s(), self._serve, session, serve, response, context=self.fabric.context)

    def _serve(self, session: Session, serve: Callable[[], T], response: asyncio.Future[T]) -> None:
        result, error = None, None
        try:
            session.take_request()
            result = serve()
        except Exception as failure:
            error = failure
        delay_s = self.delay_s()
        if self.random.random() < self.faults.lose_response:
            result, error, delay_s = None, ConnectionLost(), BREAK_S * self.random.random()
        if self.fabric.passes(ADDRESS, session.process.address):
            self.fabric.loop.call_later(delay_s, _respond, response, result, error, context=session.process.context)


class Session:
    """One session; it expires when its process was not heard for its time, and is over when it expired or was closed.

    ``view`` is the moment that the server shows to which it is connected.
    """

    def __init__(
        self, service: StoreService, owner: Owner, process: Process, timeout_s: float, user: SessionUser
    ) -> None:
        self.owner, self.process, self.timeout_s = owner, process, timeout_s
        self._service, self._user = service, user
        self._heard_at, self._seen = service.clock.now(), 0
        self.is_over = self.is_left = self.owes = False
        self.lag_s = 0.0
        self.connect()
        self._beat_later()

    def connect(self) -> None:
        """Connect to another server."""
        service = self._service
        self.lag_s = service.random.random() * service.faults.longest_lag_s

    def see(self, moment: Moment) -> None:
        """What is read from now on is not older."""
        self._seen = max(self._seen, moment)

    @property
    def view(self) -> Moment:
        lag_s = min(self.lag_s, self._service.faults.longest_lag_s)
        self.see(self._service.tree.moment_at(self._service.clock.now() - lag_s))
        return self._seen

    def take_request(self) -> None:
        """Keep a client alive that sent a request. Raises SessionExpired if it is too late."""
        if self.is_over:
            raise SessionExpired
        self._heard_at = self._service.clock.now()

    def _beat_later(self) -> None:
        pause_s = self.timeout_s / BEATS * (0.9 + 0.2 * self._service.random.random())
        self._service.fabric.loop.call_later(pause_s, self._beat, context=self._service.fabric.context)

    def _beat(self) -> None:
        if self.is_over:
            return
        service, process, loop = self._service, self.process, self._service.fabric.loop
        if service.reaches(process) and not self.is_left:
            self._heard_at, owes = service.clock.now(), self.owes
            self.owes = False
            loop.call_later(service.delay_s(), lambda: self._user.heard(owes=owes), context=process.context)
        elif service.clock.now() - self._heard_at >= self.timeout_s:
            return self.expire()
        elif process.alive and not process.paused and not self.is_left:
            loop.call_soon(self._user.unheard, context=process.context)
        self._beat_later()

    def expire(self) -> None:
        """Forget the session, and tell its process as soon as that is there."""
        if not self.is_over:
            self._service.fabric.trace.note("session expired", self.owner, self.process.name)
            self.end()
            self._tell()

    def _tell(self) -> None:
        service, process = self._service, self.process
        if not process.alive or self.is_left:
            return
        if service.reaches(process):
            service.fabric.loop.call_later(
                service.delay_s(), lambda: self._user.heard(owes=True), context=process.context
            )
        else:
            service.fabric.loop.call_later(self.timeout_s / BEATS, self._tell, context=service.fabric.context)

    def leave(self) -> None:
        """The process keeps it up no longer."""
        self.is_left = True

    def end(self) -> None:
        """End the session: its ephemeral nodes vanish."""
        if not self.is_over:
            self.is_over = True
            self._service.sessions.remove(self)
            self._service.tree.transact(self._remove_nodes)

    def _remove_nodes(self) -> None:
        tree = self._service.tree
        for path in [path for path, node in tree.nodes.items() if node.owner == self.owner]:
            tree.remove(path)


def _respond(response: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if response.done():
        return
    if error is not None:
        response.set_exception(error)
    else:
        response.set_result(result)
