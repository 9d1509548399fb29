"""One simulated life of a cluster that is repaired: beside all that ``cluster.py`` has, auditors and replicators.

They work all along, are killed and paused as clients are, and take bookies for lost after a second. When the faults
have ended and every ledger is closed, a bookie is lost: all that it had must be on others. Then it comes back. Bookies
drop what others have in their place, it and all others before, and what is left must be there when all lose power at
once.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from tallystick.bookkeeper.repair.auditor import Auditor
from tallystick.bookkeeper.repair.copy_audit import CopyAudit
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.sim.cluster import CALM_S, MAX_TURNS, ClusterLife
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_clients import Shared
from tallystick.sim.cluster_faults import ClusterPlan
from tallystick.sim.cluster_hosts import BookieHost, LedgerClientHost
from tallystick.sim.failing_disk import with_failing_disks
from tallystick.sim.life import live
from tallystick.sim.repairs_judge import RepairJudge
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualLoop
from tallystick.sim.virtual.trace import Trace

# Whoever writes an open ledger is left alone: the recoveries of this life are those of its plan.
REPAIR = RepairSettings(
    grace_s=1.0,
    open_grace_s=1e9,
    audit_every_s=5.0,
    close_check_s=1.0,
    poll_s=0.5,
    retry_s=0.5,
    max_retry_s=2.0,
    batch_entries=4,
)
REPAIRERS = 2
SURPLUS_WAIT_S = 3.0  # between two looks of a bookie at its own copies
ABSENT_S = 60.0  # in which an idle writer replaces a bookie that is gone
REPAIR_S = 120.0  # in which a bookie that is gone is replaced, and what it has then is dropped


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = ClusterPlan.draw(rng)
    # What a bookie says that forgot what it had is another matter (``cluster.py``); and there is a bookie to copy to.
    plan = replace(plan, damage=None, bookies=plan.bookies + 1)
    plan = replace(plan, chaos=with_failing_disks(seed, plan.chaos, plan.storm_s))
    loop = VirtualLoop(max_seconds=plan.storm_s + CALM_S + ABSENT_S + 2 * REPAIR_S, max_turns=4 * MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = RepairJudge(seed, trace)
    judge.stop = loop.stop
    life = RepairLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge)
    return live(seed, life.live(), loop, trace, judge, "P9")


class RepairLife(ClusterLife):
    """One life; ``live`` it once."""

    _judge: RepairJudge

    def _host(self, address: str | None = None) -> BookieHost:
        host = super()._host(address)
        host.surplus_wait_s, host.shed = SURPLUS_WAIT_S, self._judge.shed
        return host

    async def _storm(self) -> None:
        self._repairers = [self._repairer(f"repairer{number}") for number in range(REPAIRERS)]
        if self._random.random() < 0.5:  # one dies, and another comes
            dies_at = self._random.random() * self._plan.storm_s
            asyncio.get_running_loop().call_later(dies_at, self._exchange)
        await super()._storm()

    def _repairer(self, name: str) -> LedgerClientHost:
        host = self._client(name)
        task = host.run(lambda client: _repair(client, name))
        task.add_done_callback(lambda done: self._ended(name, done))
        return host

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._judge.fail("P9", f"{name} ended with {error!r}")

    def _exchange(self) -> None:
        self._repairers.pop(0).kill()
        self._repairers.append(self._repairer("successor"))

    async def _calm(self) -> None:
        await self._miss_one()
        await super()._calm()
        await self._lose_one()

    async def _miss_one(self) -> None:
        """Lose a bookie of an open ledger for a while; its writer, which appends nothing, notices by itself."""
        await self._await_bookies()
        books = [shared.book.result() for shared in self._books if _is_idle(shared)]
        idle = [book for book in books if not (book.deleted or book.defers) and book.metadata.state is LedgerState.OPEN]
        if not idle:
            return
        book = self._random.choice(idle)
        host = next(host for host in self._bookies if host.id == book.metadata.ensemble[0])
        others = {each.id for each in self._bookies if not each.retired}
        if host.retired or others <= {*book.metadata.ensemble, *book.metadata.avoided}:
            return
        self._trace.note("missed by an idle writer", host.id, book.id)
        host.retired = True
        host.kill()
        deadline = self._loop.time() + ABSENT_S
        while book.metadata.state is LedgerState.OPEN and host.id in book.metadata.ensemble and _writes(book):
            if self._loop.time() > deadline:
                self._judge.fail("R6", f"{host.id} is gone, and the writer of ledger {book.id} does not replace it")
            await asyncio.sleep(0.5)
        host.retired = False
        host.boot()

    async def _lose_one(self) -> None:
        """Lose a bookie that ledgers name until nothing misses it, and have it back."""
        await self._await_bookies()
        named = self._judge.named()
        there = [host for host in self._bookies if host.id in named and not host.retired]
        if not there:
            return
        host = self._random.choice(there)
        self._trace.note("lost for good", host.id)
        host.retired = True
        host.kill()
        deadline = self._loop.time() + REPAIR_S
        others = [other.id for other in self._bookies if not other.retired]
        while left := self._judge.repairable(host.id, others):  # until it is made good, or late
            if self._loop.time() > deadline:
                self._judge.fail("R3", f"ledgers {left} still name {host.id}, and others have all that it had")
            await asyncio.sleep(0.5)
        # It is back: where it alone has some entries, it is named still; of others it has what nobody needs.
        host.retired = False
        host.boot()
        deadline = self._loop.time() + REPAIR_S
        await self._await_bookies()
        while surplus := self._judge.surplus():
            if self._loop.time() > deadline:
                self._judge.fail("R4", f"these have entries of ledgers that name others: {surplus}")
            await asyncio.sleep(0.5)


def _is_idle(shared: Shared) -> bool:
    return shared.plan.writer_end == "idle" and shared.book.done() and not (shared.book.cancelled() or shared.is_left())


def _writes(book: LedgerHistory) -> bool:
    """Return whether the writer of a ledger takes entries, and lacks no bookie."""
    assert book.writer is not None
    return not book.is_fenced and "open" in repr(book.writer) and not book.writer.missing


async def _repair(client: BookKeeper, name: str) -> None:
    context = client.context
    auditor = Auditor(context.driver, name, REPAIR, context.clock, context.events)
    copies = CopyAudit(context, client.placement, auditor, REPAIR)
    await asyncio.gather(auditor.run(), copies.run(), Replicator(client, name, REPAIR).run())
