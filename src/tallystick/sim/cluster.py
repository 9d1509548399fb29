"""One simulated life of a cluster: whole clients and bookies on virtual time, disturbed, then left alone and checked.

Nothing here is a model of the code: the shells that run are those of production, with a loop, a network, disks, workers
and metadata that are late, cut, full, or without power. First everything may go wrong (safety), then the faults end and
all that was begun must come to its end (P9). At last every bookie loses power at once, and what was promised must be
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.ledger.bookie_peer import WITHOUT_V3_S
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import BookieId, EntryId, LedgerId, LedgerState
from tallystick.errors import StorageError
from tallystick.sim import cluster_clients as programs
from tallystick.sim.budgets import Budgets
from tallystick.sim.cluster_budgets import BUDGETS, counts
from tallystick.sim.cluster_chaos import ClusterChaos
from tallystick.sim.cluster_damage import Damage
from tallystick.sim.cluster_faults import ClusterPlan
from tallystick.sim.cluster_hosts import BookieHost, ClusterWorld, LedgerClientHost
from tallystick.sim.cluster_judge import ClusterJudge
from tallystick.sim.cluster_metadata import MetadataFaults, MetadataService
from tallystick.sim.cluster_wire import WireWatch
from tallystick.sim.cluster_writer import write
from tallystick.sim.failing_disk import with_failing_disks
from tallystick.sim.invariants import Violation
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.trace import Trace

Program = Coroutine[Any, Any, None]

CALM_S = 300.0  # in which all must come to its end
FOLLOWED_S = 20.0  # in which who follows an open ledger gets its last entry
MAX_TURNS = 100_000  # over twice the most that a life came to: 160 entries of 3,000 bytes in pieces of 512


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = ClusterPlan.draw(rng)
    plan = replace(plan, chaos=with_failing_disks(seed, plan.chaos, plan.storm_s))
    loop = VirtualLoop(max_seconds=plan.storm_s + CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = ClusterJudge(seed, trace)
    judge.stop = loop.stop
    return live(
        seed,
        ClusterLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge).live(),
        loop,
        trace,
        judge,
        "P9",
    )


class ClusterLife:
    """One life of bookies and their clients; ``live`` it once."""

    _read_at_the_end = staticmethod(programs.recover)  # the program that reads each ledger then

    def __init__(
        self, seed: int, *, rng: random.Random, plan: ClusterPlan, loop: VirtualLoop, trace: Trace, judge: ClusterJudge
    ) -> None:
        self._plan, self._random, self._loop, self._trace, self._judge = plan, rng, loop, trace, judge
        self._name = f"sim-{seed}"
        self._programs: list[asyncio.Task[None]] = []  # that must come to their end
        self._books: list[programs.Shared] = []
        self._undisturbed: list[tuple[asyncio.Task[None], programs.Shared]] = []  # who writes, and nobody recovers
        self._followed: list[tuple[asyncio.Task[None], programs.Shared]] = []  # whose writer stays, and tells its LAC
        self._clients: list[LedgerClientHost] = []
        self._watch = WireWatch(judge, loop.time)

    async def live(self) -> None:
        plan, loop = self._plan, self._loop
        fabric = Fabric(self._random, self._trace)
        fabric.on_write = self._watch.wrote
        service = self._service = self._metadata(fabric)
        try:
            await service.driver.init_cluster()
            self._world = ClusterWorld(
                loop,
                rng=self._random,
                trace=self._trace,
                fabric=fabric,
                sync_s=plan.sync_s,
                service=service,
                judge=self._judge,
            )
            self._bookies: list[BookieHost] = []
            for _ in range(plan.bookies):
                self._host()
            self._judge.storages, self._judge.look = self._storages, self._look
            self._judge.durability.start = self._durable
            self._boot()
            budgets = Budgets(BUDGETS, lambda: counts(self._world, loop, self._bookies), "budget", self._judge.fail)
            self._watching = asyncio.create_task(budgets.watch())  # until the end
            await self._await_bookies()
            fabric.faults, service.faults = plan.links, plan.metadata
            await self._storm()
            fabric.faults, service.faults = CALM, MetadataFaults()
            self._waiting = asyncio.create_task(self._watch.requests.watch())  # until the end
            await self._calm()
            await self._check()
        finally:
            service.end()

    def _metadata(self, fabric: Fabric) -> MetadataService:
        return MetadataService(fabric, self._random, self._name, MetadataFaults(), self._judge)

    def _host(self, address: str | None = None) -> BookieHost:
        plan = self._plan
        self._bookies.append(BookieHost(self._world, len(self._bookies), plan.collect_s, address))
        return self._bookies[-1]

    def _storages(self) -> dict[BookieId, Storage]:
        return {host.id: host.bookie.storage for host in self._bookies if host.bookie is not None}

    def _look(self, bookie: BookieId, ledger: LedgerId, entry: EntryId) -> tuple[int, bytes] | None:
        """Returns the bytes that a bookie has of an entry. Returns None while it is away, or cannot read them."""
        for host in self._bookies:
            if host.id == bookie and host.bookie is not None:
                with host.disk.undisturbed(), contextlib.suppress(StorageError):
                    return host.bookie.storage.read(ledger, entry)
        return None

    def _durable(self, bookie: BookieId) -> Storage | None:
        """Returns what a bookie has for good. Returns None of a disk that has rotted."""
        return next(host.durable() for host in self._bookies if host.id == bookie)

    def _boot(self) -> None:
        for bookie in self._bookies:
            bookie.boot()

    async def _await_bookies(self) -> None:
        """Wait until all bookies take writes, but for one that cannot start any more."""
        while True:
            there = [host for host in self._bookies if not host.retired]
            writable = (await self._service.driver.bookies()).writable
            if all(host.bookie is not None and host.id in writable for host in there):
                return
            await asyncio.sleep(0.1)

    def _client(self, name: str, *, needs_v3: bool = False) -> LedgerClientHost:
        wire = self._random.choice(self._plan.wires)
        if needs_v3 and wire == "v2":
            wire = "auto"
        client = LedgerClientHost(self._world, len(self._clients), name, wire)
        self._watch.wires[client.address] = wire
        self._clients.append(client)
        return client

    # The storm.

    async def _storm(self) -> None:
        plan, chaos = self._plan, ClusterChaos(self._world, self._bookies, self._clients)
        if plan.dark_at_ack is not None:
            self._judge.alarm = plan.dark_at_ack, chaos.darken
        tasks = [asyncio.create_task(self._begin(shared)) for shared in self._shared()]
        tasks += [asyncio.create_task(chaos.strike(at, what)) for at, what in plan.chaos]
        if plan.damage is not None:
            tasks.append(asyncio.create_task(Damage(self._world, self._bookies, self._host).strike(*plan.damage)))
        await asyncio.sleep(plan.storm_s)
        await asyncio.gather(*tasks)
        self._judge.alarm = None
        chaos.end()

    async def _begin(self, shared: programs.Shared) -> None:
        book = shared.plan
        await asyncio.sleep(book.begins)
        writer = self._client("writer", needs_v3=book.forces)
        writing = writer.run(lambda client: write(shared, client))
        shared.is_left = lambda: writing.done() or not writer.process.alive
        if book.writer_end == "close":
            self._programs.append(writing)
            if not book.recoverers:
                self._undisturbed.append((writing, shared))
        if book.tails:
            _, follower = self._start("follower", shared, programs.follow)
            if book.writer_end == "idle" and "v2" not in (writer.wire, follower.wire):
                self._followed.append((writing, shared))
        if book.looks:
            self._start("looker", shared, programs.look)
        if book.deleted:
            self._start("deleter", shared, programs.delete)
        rivals = [asyncio.create_task(self._recover(at, shared)) for at in book.recoverers]
        if book.writer_end == "kill":
            await asyncio.sleep(self._random.random() * self._plan.storm_s)
            writer.kill()
            if not shared.book.done():
                shared.book.cancel()  # and with it whoever waits for it
        await asyncio.gather(*rivals)

    def _shared(self) -> list[programs.Shared]:
        for plan in self._plan.books:
            before = None if plan.takes_id_of is None else self._books[plan.takes_id_of]
            self._books.append(programs.Shared(plan, self._judge, self._world.chance(), before))
            self._books[-1].is_gone = self._is_gone
        return self._books

    def _is_gone(self, bookie: BookieId) -> bool:
        return any(host.id == bookie and host.retired for host in self._bookies)

    async def _recover(self, at: float, shared: programs.Shared) -> None:
        await asyncio.sleep(at)
        task, client = self._start("recoverer", shared, programs.recover)
        if self._random.random() < 0.2:  # it dies in the middle; somebody else goes on
            await asyncio.sleep(self._random.random() * 0.1)
            if not task.done():
                client.kill()
                self._programs.remove(task)

    def _start(
        self, name: str, shared: programs.Shared, program: Callable[[programs.Shared, BookKeeper], Program]
    ) -> tuple[asyncio.Task[None], LedgerClientHost]:
        client = self._client(name)
        task = client.run(lambda keeper: program(shared, keeper))
        self._programs.append(task)
        return task, client

    # The end.

    async def _calm(self) -> None:
        """Recover each ledger, whatever became of its writer; then all programs end."""
        await self._follow()
        for shared in self._books:
            if shared.plan.writer_end != "close" or shared.plan.recoverers:
                self._start("heir", shared, programs.recover)
        await asyncio.gather(*(self._inherit(*each) for each in self._undisturbed))
        await self._end_programs()

    async def _follow(self) -> None:
        """Have the idle writers append once more; who follows them gets that while the ledger stays open."""
        if not any(not writing.done() for writing, _ in self._followed):
            return
        await asyncio.sleep(WITHOUT_V3_S)  # who was thought to lack version 3 is asked again
        for writing, shared in self._followed:
            shared.one_more.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOWED_S):
                    while not (writing.done() or _is_followed(shared)):  # noqa: ASYNC110  # judged when it is late
                        await asyncio.sleep(0.1)
            if shared.last_appended is None or _is_followed(shared):
                continue
            book = shared.book.result()
            # Of one that a recovery has left unfinished the writer may say nothing more.
            if not book.deleted and book.metadata.state is not LedgerState.IN_RECOVERY:
                text = f"who follows ledger {book.id} is at {shared.followed}"
                self._judge.fail("P9", f"{text}: entry {shared.last_appended} is confirmed")

    async def _inherit(self, writing: asyncio.Task[None], shared: programs.Shared) -> None:
        """Recover a ledger that its writer may have closed already."""
        await asyncio.wait([writing])
        if shared.book.done():
            self._start("heir", shared, programs.recover)

    async def _end_programs(self) -> None:
        for task in self._programs:
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error if isinstance(error, Violation) else Violation(f"P9: a program ended with {error!r}")
        self._programs.clear()

    async def _check(self) -> None:
        """Take the power from all bookies, and check that everything is there afterwards."""
        await self._await_bookies()
        for bookie in self._bookies:
            bookie.lose_power()
        self._boot()
        await self._await_bookies()
        for shared in self._books:
            if shared.book.done() and not shared.book.cancelled():
                self._start("reader", shared, self._read_at_the_end)
        await self._end_programs()
        await self._await_bookies()
        self._judge.at_the_end()
        while self._judge.leftovers():  # noqa: ASYNC110  # until collections are through, or the time is
            await asyncio.sleep(1.0)


def _is_followed(shared: programs.Shared) -> bool:
    return shared.last_appended is not None and shared.followed >= shared.last_appended
