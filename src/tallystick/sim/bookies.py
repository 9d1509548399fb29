"""Bookies as the ledger protocol sees them, and the network to them, with faults at every hop.

A bookie here is what a real one promises and no more: an answer is sent when what it tells is synced; a death loses
what was not; a fence holds from the moment it is taken. (The real storage engine has its own simulation, over a disk.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.v2 import Code
from tallystick.bookkeeper.wire.values import BookieId, EntryId
from tallystick.sim.faults import Faults
from tallystick.sim.world import World

TIMEOUT = 5.0
SYNC = 0.02


@dataclass(frozen=True)
class Stored:
    """An entry: its content stands for the payload; LAC and length as in its header."""

    content: int
    lac: EntryId
    length: int


@dataclass(frozen=True)
class Request:
    """ADD when it carries an entry, else READ; ``entry`` -1 reads the last one."""

    entry: EntryId
    stored: Stored | None = None
    fence: bool = False
    recovery: bool = False


@dataclass(frozen=True)
class Reply:
    code: int
    entry: EntryId = -1
    stored: Stored | None = None


@dataclass
class Bookie:
    """One storage node's state of the one ledger of a run."""

    id: BookieId
    entries: dict[EntryId, Stored] = field(default_factory=dict)  # what reads see
    fenced: bool = False
    durable: dict[EntryId, Stored] = field(default_factory=dict)
    durable_fence: bool = False
    known: bool = False
    alive: bool = True
    silent_until: float = 0.0
    life: int = 0  # how often it started: what an earlier life scheduled is void

    def add(self, request: Request) -> Reply:
        assert request.stored is not None
        if self.fenced and not request.recovery:
            return Reply(Code.FENCED, request.entry)
        self.known = True
        self.entries[request.entry] = request.stored
        return Reply(Code.OK, request.entry)

    def read(self, request: Request) -> Reply:
        if request.fence:
            self.known = self.fenced = True
        entry = max(self.entries, default=-1) if request.entry == -1 else request.entry
        if entry in self.entries:
            return Reply(Code.OK, entry, self.entries[entry])
        return Reply(Code.NO_ENTRY if self.known else Code.NO_LEDGER, request.entry)

    def sync(self, entries: dict[EntryId, Stored], fence: bool) -> None:
        self.durable.update(entries)
        self.durable_fence |= fence

    def die(self, lost: Callable[[], bool]) -> None:
        """Everything synced survives; of the rest, ``lost`` decides record by record."""
        kept = {
            entry: stored for entry, stored in self.entries.items() if self.durable.get(entry) != stored and not lost()
        }
        self.durable |= kept
        if self.fenced and not self.durable_fence:
            self.durable_fence = not lost()
        self.entries, self.fenced = dict(self.durable), self.durable_fence
        self.known = bool(self.entries) or self.fenced
        self.alive = False
        self.life += 1


class Cluster:
    """All bookies, and the way to them."""

    def __init__(self, world: World, faults: Faults, bookies: int) -> None:
        self.world, self.faults = world, faults
        self.bookies = {bookie: Bookie(bookie) for bookie in (f"b{number}" for number in range(bookies))}
        self.calm = False  # faults have stopped

    def call(self, bookie: BookieId, request: Request, answered: Callable[[Reply | None], None]) -> None:
        """Send a request; ``answered`` once with the reply, or with None for unknown; and again with a late reply."""
        state = {"open": True}

        def receive(reply: Reply | None) -> None:
            if reply is not None or state["open"]:
                state["open"] = False
                answered(reply)

        self.world.after(TIMEOUT, receive, None)
        for _ in range(1 + self._happens(self.faults.duplicate)):
            if not self._happens(self.faults.lose_request):
                self.world.after(self._delay(), self._arrive, self.bookies[bookie], request, receive)

    def kill(self, bookie: Bookie) -> None:
        if bookie.alive:
            self.world.note(bookie.id, "dies")
            bookie.die(lambda: not self.faults.power_loss or self.world.chance(0.5))

    def start(self, bookie: Bookie) -> None:
        if not bookie.alive:
            self.world.note(bookie.id, "starts")
            bookie.alive = True

    def _arrive(self, bookie: Bookie, request: Request, receive: Callable[[Reply | None], None]) -> None:
        if not bookie.alive:
            self.world.after(self._delay(), receive, None)  # connection refused
            return
        if bookie.silent_until > self.world.now:
            self.world.after(bookie.silent_until - self.world.now, self._arrive, bookie, request, receive)
            return
        reply = bookie.read(request) if request.stored is None else bookie.add(request)
        self.world.note(bookie.id, "fence" if request.fence else "read" if request.stored is None else "add",
                        request.entry, "→", int(reply.code))  # fmt: skip
        changed = request.fence or (request.stored is not None and reply.code == Code.OK)
        if not changed:
            self._answer(reply, receive)
            return
        staged = {request.entry: request.stored} if request.stored is not None else {}
        self.world.after(
            SYNC * self.world.random.random(), self._synced, bookie, bookie.life, staged, request.fence, reply, receive
        )

    def _synced(
        self, bookie: Bookie, life: int, staged: dict[EntryId, Stored], fence: bool, reply: Reply,
        receive: Callable[[Reply | None], None],
    ) -> None:  # fmt: skip
        if bookie.life == life:
            bookie.sync(staged, fence)
            self._answer(reply, receive)

    def _answer(self, reply: Reply, receive: Callable[[Reply | None], None]) -> None:
        if not self._happens(self.faults.lose_answer):
            self.world.after(self._delay(), receive, reply)

    def _happens(self, probability: float) -> bool:
        return not self.calm and self.world.chance(probability)

    def _delay(self) -> float:
        quick = 0.001 + 0.01 * self.world.random.random()
        return min(60.0, 0.5 * self.world.random.paretovariate(0.7)) if self._happens(self.faults.slow) else quick
