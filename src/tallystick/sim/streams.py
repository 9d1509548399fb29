"""One simulated life of a stream: owners, readers and consumers, whole, on virtual time, disturbed, then left alone.

The shells that run are those of production: clients and bookies, over a network, disks and a metadata service that are
late, cut and without power. Processes die, pause and come back, and sessions expire meanwhile. First everything may go
wrong (safety), then the faults end, and all that was begun must come to its end (S9).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.stream_values import EARLIEST
from tallystick.errors import StreamFenced, StreamOwned
from tallystick.sim.budgets import Budgets
from tallystick.sim.cluster_budgets import BUDGETS, counts
from tallystick.sim.cluster_hosts import CLIENT, BookieHost
from tallystick.sim.invariants import Violation
from tallystick.sim.life import live
from tallystick.sim.series import Outcome
from tallystick.sim.store_service import StoreFaults, StoreService
from tallystick.sim.streams_chaos import StreamsChaos
from tallystick.sim.streams_consumer import consume, drain
from tallystick.sim.streams_crossings import crossed
from tallystick.sim.streams_hosts import StreamClientHost, StreamsMetadata, StreamsWorld
from tallystick.sim.streams_judge import StreamsJudge
from tallystick.sim.streams_limits import limited
from tallystick.sim.streams_list_judge import NAME
from tallystick.sim.streams_owner import Owner, Producer, delete, own
from tallystick.sim.streams_plan import Rich, StreamsPlan
from tallystick.sim.streams_readers import Tail, follow, look
from tallystick.sim.streams_refusals import check_refusals
from tallystick.sim.streams_repair import close_by_repair
from tallystick.sim.streams_shared import AGAIN_S, FUTILE, Shared
from tallystick.sim.virtual.loop import VirtualClock, VirtualLoop
from tallystick.sim.virtual.network import CALM, Fabric
from tallystick.sim.virtual.process import Process
from tallystick.sim.virtual.trace import Trace

Program = Callable[[BookKeeper], Coroutine[Any, Any, None]]

CALM_S = 300.0  # in which all must come to its end
OPENED_S = 30.0  # in which the stream has an owner again
FOLLOWED_S = 20.0  # in which who follows gets the last message
READ_S = 30.0  # in which all can be read
TIDIED_S = 30.0  # in which what belongs to nothing is deleted
APPENDED = 3  # by the heir
BORN_AGAIN_S = 1.0  # a program that was killed begins anew within this time
MAX_TURNS = 300_000
STREAM_BUDGETS = {  # many ledgers are open one after another, and read while they are
    **BUDGETS,
    "open files of a bookie": 160,  # it keeps 256 logs open, and a long life leaves many small ones
    "polls that a bookie holds": 200,
}


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan = limited(crossed(StreamsPlan.draw(rng, Rich(seed)), seed), seed)
    loop = VirtualLoop(max_seconds=plan.storm_s + CALM_S, max_turns=MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    judge = StreamsJudge(trace, plan, loop.time)
    judge.stop = loop.stop
    life = StreamsLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge)
    return live(seed, life.live(), loop, trace, judge, "S9")


class StreamsLife:
    """One life of a stream; ``live`` it once."""

    def __init__(
        self, seed: int, *, rng: random.Random, plan: StreamsPlan, loop: VirtualLoop, trace: Trace, judge: StreamsJudge
    ) -> None:
        self._plan, self._random, self._loop, self._trace, self._judge = plan, rng, loop, trace, judge
        self._name = f"sim-{seed}"
        self._clients: list[StreamClientHost] = []
        self._bookies: list[BookieHost] = []

    async def live(self) -> None:
        plan, loop = self._plan, self._loop
        fabric = Fabric(self._random, self._trace)
        service = StoreService(fabric, self._random, StoreFaults(), VirtualClock(loop))
        service.tree.on_transaction = self._judge.changed
        metadata = StreamsMetadata(self._name, service)
        self._operator = metadata.connect(Process(loop, "operator", "10.0.0.251"))
        await self._operator.init_cluster()
        self._world = StreamsWorld(
            loop,
            rng=self._random,
            trace=self._trace,
            fabric=fabric,
            sync_s=plan.sync_s,
            service=metadata,
            judge=self._judge,
        )
        self._shared = Shared(plan, self._judge, self._world.chance())
        for number in range(plan.bookies):
            self._bookies.append(BookieHost(self._world, number, collect_s=2.0))
            self._bookies[-1].boot()
        budgets = Budgets(STREAM_BUDGETS, lambda: counts(self._world, loop, self._bookies), "budget", self._judge.fail)
        self._watching = asyncio.create_task(budgets.watch())  # until the end
        await self._await_bookies()
        fabric.faults, service.faults = plan.links, plan.metadata
        await self._storm()
        fabric.faults, service.faults = CALM, StoreFaults()
        await self._calm()

    async def _await_bookies(self) -> None:
        """Wait until all bookies take writes."""
        while True:
            writable = (await self._operator.bookies()).writable
            if all(host.bookie is not None and host.id in writable for host in self._bookies):
                return
            await asyncio.sleep(0.1)

    # The storm.

    async def _storm(self) -> None:
        plan, shared = self._plan, self._shared
        chaos = StreamsChaos(self._world, self._bookies, self._clients)
        readers = [(0.0, f"follower{n}", partial(follow, shared, f"follower{n}")) for n in range(plan.followers)]
        self._roles = [asyncio.create_task(self._play(*program)) for program in self._programs()]
        self._followers = [asyncio.create_task(self._play(*program)) for program in readers]
        strikes = [asyncio.create_task(chaos.strike(at, what)) for at, what in plan.chaos]
        await asyncio.sleep(plan.storm_s)
        await asyncio.gather(*strikes)
        chaos.end()

    def _programs(self) -> list[tuple[float, str, Program]]:
        """Returns those that run until the faults have ended: when each begins, and its name."""
        plan, shared = self._plan, self._shared
        programs: list[tuple[float, str, Program]] = [
            (owner.begins, f"owner{number}", partial(own, shared, owner, Producer(f"p{number}"), f"owner{number}"))
            for number, owner in enumerate(plan.owners)
        ]
        programs += [(0.0, f"looker{n}", partial(look, shared, f"looker{n}")) for n in range(plan.lookers)]
        if plan.deletions:
            programs.append((0.0, "deleter", partial(delete, shared)))
        programs += [
            (
                cursor.begins,
                f"consumer {cursor.name}.{n}",
                partial(consume, shared, cursor, f"consumer {cursor.name}.{n}"),
            )
            for cursor in plan.cursors
            for n in range(cursor.consumers)
        ]
        return programs

    async def _play(self, begins: float, name: str, program: Program) -> None:
        """Run a program, and again when it was killed."""
        await asyncio.sleep(begins)
        while True:
            client = self._client(name)
            task = client.run(program)
            await asyncio.wait({task, client.death}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return await task
            await asyncio.sleep(BORN_AGAIN_S * self._random.random())

    def _client(self, name: str, *, needs_v3: bool = False) -> StreamClientHost:
        plan, number = self._plan, len(self._clients)
        wire = self._random.choice(plan.wires)
        if needs_v3 and wire == "v2":
            wire = "auto"
        client = replace(CLIENT, wire=wire, no_quorum_s=plan.no_quorum_s)
        if name == "heir":  # replicators get to its ledger
            client = replace(client, absent_bookie_s=0.0)
        settings = StreamClientSettings(
            plan.lease_s,
            max_entries_per_cursor_ledger=plan.max_cursor_entries,
            dedup_interval_entries=plan.dedup_interval,
        )
        self._clients.append(StreamClientHost(self._world, number, name, client=client, streams=settings))
        return self._clients[-1]

    async def _run(self, name: str, program: Program) -> None:
        """Run a program to its end."""
        await self._client(name, needs_v3=True).run(program)

    # The end.

    async def _calm(self) -> None:
        await self._await_bookies()
        self._shared.is_over.set()
        await self._end(self._roles)
        await self._run("heir", self._inherit)
        await self._run("reader", self._read_all)
        self._judge.at_the_end(self._content)
        await self._drain_all("last")
        await self._run("last owner", self._tidy)

    async def _drain_all(self, which: str) -> None:
        """Consume all that the cursors have."""
        for cursor in self._plan.cursors:
            name = f"{which} of {cursor.name}"
            await self._run(name, partial(drain, self._shared, cursor, name))

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            await asyncio.wait([task])
            if (error := task.exception()) is not None:
                raise error if isinstance(error, Violation) else Violation(f"S9: a program ended with {error!r}")

    async def _open(self, client: BookKeeper) -> Stream:
        """Become the owner, without taking the stream over, in bounded time."""
        until = self._loop.time() + OPENED_S
        while True:
            try:
                return await client.open_stream(NAME, settings=self._shared.settings)
            except (*FUTILE, StreamOwned, StreamFenced) as error:
                if self._loop.time() > until:
                    self._judge.fail("S9", f"nobody can open the stream: {error!r}")
                await asyncio.sleep(AGAIN_S)

    async def _inherit(self, client: BookKeeper) -> None:
        """Own the stream, append to it, and see that who follows has all of it."""
        shared, judge, plan = self._shared, self._judge, self._plan
        after = len(judge.handles)
        stream = await self._open(client)
        if stream.terminated is None:
            owner = Owner(
                shared, plan.owners[0], shared.chance(), stream, judge.opened("heir", after), Producer("heir")
            )
            await self._append(owner, "the heir")
            if plan.saves_numbers:
                await owner.append_numbered()  # who numbers deletes what those before left of a save
                await owner.wait()
            if await close_by_repair(judge, self._operator, self._bookies, self._client, self._random):
                if not plan.refuses:  # what is refused for a backlog is taken again below
                    await self._append(owner, "the heir, whose ledger a replicator closed,")
                await self._await_bookies()
            if plan.refuses:
                await check_refusals(shared, owner, self._drain_all)
        await self._follow("v3")
        await stream.close()  # now all know its end
        await self._follow("v3", "v2", "auto")
        shared.is_read.set()
        await self._end(self._followers)

    async def _append(self, owner: Owner, who: str) -> None:
        appends = [owner.append() for _ in range(APPENDED)]
        await owner.wait()
        if any(append is None or append.exception() is not None for append in appends):
            self._judge.fail("S9", f"{who} cannot append: {appends}")

    async def _follow(self, *wires: str) -> None:
        """Wait until who follows by these has what was acknowledged."""
        judge, until = self._judge, self._loop.time() + FOLLOWED_S
        names = [client.name for client in self._clients if client.process.alive and client.wire in wires]
        followers = [name for name in names if name.startswith("follower")]
        while (last := judge.last_acked()) is not None and any(
            self._shared.followed.get(name, EARLIEST) < last for name in followers
        ):
            if self._loop.time() > until:
                text = f"{self._shared.followed}, and {last} is acknowledged"
                judge.fail("S9", f"of {followers} that follow by {wires} some are behind: {text}")
            await asyncio.sleep(0.1)

    async def _read_all(self, client: BookKeeper) -> None:
        """Read all that there is."""
        tail, until = Tail(self._shared, "reader"), self._loop.time() + READ_S
        while True:
            try:
                async with client.read_stream(NAME, entry_format=self._plan.entry_format) as reader:
                    while not await tail.read(reader, follow=False):
                        pass  # a part was trimmed just now
                break
            except FUTILE as error:
                if self._loop.time() > until:
                    self._judge.fail("S9", f"the stream cannot be read: {error!r}")
                await asyncio.sleep(AGAIN_S)
        self._content = tail.content

    async def _tidy(self, client: BookKeeper) -> None:
        """Trim what nobody needs, or delete all; nothing is left that belongs to nothing."""
        judge, plan = self._judge, self._plan
        stream = await self._open(client)
        if plan.is_deleted:
            await stream.close()
            await self._delete(client)
        else:
            await asyncio.sleep(max(plan.retention_s, 0.0))
            await stream.trim()
            if plan.retention_s >= 0 and (rest := judge.list.unneeded()):
                judge.fail("S9", f"ledgers {rest} are needed by nobody, and not trimmed")
        await self._await_tidy()
        if not plan.is_deleted:
            await stream.close()

    async def _delete(self, client: BookKeeper) -> None:
        self._judge.list.may_be_deleted = True
        await client.delete_stream(NAME)
        if self._judge.list.info is not None:
            self._judge.fail("S9", "the stream is deleted, and there")

    async def _await_tidy(self) -> None:
        """Wait until nothing is left that belongs to nothing."""
        until = self._loop.time() + TIDIED_S
        while rests := self._judge.list.leftovers():
            if self._loop.time() > until:
                self._judge.fail("S8", f"these stay: {', '.join(rests)}")
            await asyncio.sleep(0.1)
