"""A slave copies its master's tables: topics, consumer offsets, delay offsets, groups (H12; ``SlaveSynchronize``).

When: see ``RoundsCore`` (the original's slaves: 60 s after the start, then every 10 s). Whether: see ``copy_proof``;
the original's take what any master has. Each part fails alone and is tried again in the next round. Topics and groups
are taken only when their versions differ, and all in one step: nobody ever sees half a table.

Commits that were made here while the master was away are sent to it as any client sends them, where it lacks them or
has lower numbers: so a master that comes back does not set them back (H3, H13; the original's does). What it refuses
for want of room is kept, and sent again seldom (``RefusedCommitsCore``). What was committed of a topic until the slave
hears that it was deleted is forgotten: it counts messages that no topic has any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tallystick.errors import TallyError, Unavailable
from tallystick.rocketmq.broker.access.table import AccessTable
from tallystick.rocketmq.broker.copy_proof import Proof, objection, proof_of
from tallystick.rocketmq.broker.master_tables import MasterTables
from tallystick.rocketmq.broker.offsets import OffsetCommit, Offsets
from tallystick.rocketmq.broker.refused_commits import RefusedCommitsCore
from tallystick.rocketmq.broker.resets import ResetTable
from tallystick.rocketmq.broker.rounds import FIRST_S, PERIOD_S, RoundsCore
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.rocketmq.ha.status import FollowStatus
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.slices import SLICE_S, in_slices
from tallystick.rocketmq.store.deletion import Deletion
from tallystick.rocketmq.store.sink_table import SinkBatch
from tallystick.rocketmq.wire.bodies import OffsetTable
from tallystick.rocketmq.wire.values import ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.worker import Worker

ORIGINAL_ENDS_S = 30.0  # between two requests to an original master for the ends of its queues
TELL_S = 5.0  # of a round, to tell the master of commits: other tables are waited for
ALL_TABLES = "all tables"  # the part that fails when none may be taken

# What to do with a commit of our own: the master has it, or will never take it.
_SETTLED = (
    ResponseCode.SUCCESS,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER,
)


class MasterQueues(Protocol):
    """The part that stores where the master's queues end: see ``ReplicatedQueues``."""

    def learn_deletions(self, deleted: Mapping[str, int]) -> Deletion | None: ...

    def learn_ends(self, ends: Mapping[tuple[str, int], int], at: int, first: int | None) -> None: ...

    def learn_sinks(self, rows: Iterable[SinkBatch], /) -> None: ...

    @property
    def most_sinks(self) -> int: ...


@dataclass
class SyncStatus:
    """The state of the copy, for ``tally ha status``."""

    synced_ms: int = 0  # when a whole round last succeeded; 0: never
    failures: dict[str, str] = field(default_factory=dict)  # of the last round, by part
    refused_commits: str = ""  # why the master lacks commits that were made here

    @property
    def why(self) -> str:
        """Why tables are not copied, those with one reason together, or the master lacks commits that were made here;
        empty if all is well."""
        parts_by_reason: dict[str, list[str]] = {}
        for part, reason in self.failures.items():
            parts_by_reason.setdefault(reason, []).append(part)
        why = [f"{', '.join(parts)}: {reason}" for reason, parts in parts_by_reason.items()]
        return "; ".join([*why, self.refused_commits] if self.refused_commits else why)


class MetadataSync:
    """Runs while the broker is a slave, which ``take_role`` tells. ``master`` may be set at any time; None if none is
    known. ``follow_status`` returns how the master's log is followed. ``worker`` runs what ``queues`` does with the
    disk. ``access``: the users here, if requests must be signed."""

    def __init__(
        self,
        client: RemotingClient,
        *,
        clock: Clock,
        events: Events,
        tables: BrokerTables,
        follow_status: Callable[[], FollowStatus],
        queues: MasterQueues | None = None,
        worker: Worker | None = None,
        access: AccessTable | None = None,
        first_s: float = FIRST_S,
        period_s: float = PERIOD_S,
    ) -> None:
        self._client, self._clock, self._events, self._tables = client, clock, events, tables
        self._follow_status, self._queues, self._worker, self._access = follow_status, queues, worker, access
        self._first_s, self._period_s = first_s, period_s
        self._master: str | None = None
        self._sooner = asyncio.Event()  # the next round may be due earlier than it was
        self._task: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin as a slave that has copied nothing yet."""
        now = self._clock.now()
        self._rounds = RoundsCore(now, first_s=self._first_s, period_s=self._period_s)
        self._rounds.master_found(self._master, now)
        self._refused_commits = RefusedCommitsCore()
        self._reported_failures: dict[str, str] = {}  # of the failures: those with an event, by part
        self._ends_due = 0.0
        self.status = SyncStatus()

    async def take_role(self, *, slave: bool) -> None:
        """Take up a role. A master has ended its copying when this returns, and has a slave's status no more."""
        if slave and self._task is None:
            self._begin()
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif not slave:
            await self.close()
            self._begin()

    @property
    def master(self) -> str | None:
        return self._master

    @master.setter
    def master(self, address: str | None) -> None:
        if address != self._master:
            self._refused_commits = RefusedCommitsCore()  # another one may have room
        self._master = address
        self._rounds.master_found(address, self._clock.now())
        self._sooner.set()

    def followed(self) -> None:
        """The slave follows its master again: a round begins at once."""
        self._rounds.followed(self._clock.now())
        self._sooner.set()

    def arrived(self, topics: Iterable[str]) -> None:
        """Records of these topics were dispatched: a round begins at once if the table lacks one."""
        if self._rounds.dispatched(topics, self._tables.topics.all, self._clock.now()):
            self._sooner.set()

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Returns the tasks that run while the broker is a slave."""
        return [self._task] if self._task is not None else []

    async def close(self) -> None:
        """End the copying, and wait for what was begun on the disk."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._worker is not None:
                await self._worker.idle()

    async def _run(self) -> None:
        while True:
            master = await self._next_round()
            self._rounds.began(self._clock.now())
            await self.sync(master)
            self._rounds.ended(self._tables.topics.all, self._clock.now(), failed=bool(self.status.failures))

    async def _next_round(self) -> str:
        """Wait for the next round. Returns its master."""
        while True:
            self._sooner.clear()
            now, due, master = self._clock.now(), self._rounds.wake_at(), self._rounds.master
            if master is not None and due is not None and due <= now:
                return master
            with contextlib.suppress(TimeoutError):  # not ``wait_for``: it may swallow the end of this task
                async with asyncio.timeout(None if due is None else due - now):
                    await self._sooner.wait()

    async def sync(self, master: str) -> None:
        """Run one round."""
        proof = proof_of(self._follow_status())
        if isinstance(proof, str):
            return self._round_ended(master, {ALL_TABLES: proof})
        tables = MasterTables(self._client, self._clock, master, proof.instance)
        table_round = _Round(tables, proof, self._follow_status, self._clock, self._refused_commits)
        parts: tuple[tuple[str, Callable[[BrokerTables], Awaitable[None]]], ...] = (
            ("topics", table_round.topics),
            ("queue ends", self._queue_ends(table_round)),  # and deletions: before commits to what was deleted
            ("consumer offsets", table_round.offsets),
            ("delay offsets", table_round.delays),
            ("groups", table_round.groups),
            ("sinks", self._sinks(table_round)),
            ("users", self._users(table_round)),
        )
        failures: dict[str, str] = {}
        for part, copy in parts:
            try:
                await copy(self._tables)
            except TallyError as error:
                failures[part] = str(error)
        self._round_ended(master, failures)

    def _queue_ends(self, table_round: _Round) -> Callable[[BrokerTables], Awaitable[None]]:
        async def copy(tables: BrokerTables) -> None:
            # An original is asked for each topic: not in each round.
            queues, worker = self._queues, self._worker
            is_due = not table_round.is_original or self._clock.now() >= self._ends_due
            if queues is not None and worker is not None and is_due:
                await table_round.queue_ends(queues, worker, tables)
                self._ends_due = self._clock.now() + ORIGINAL_ENDS_S

        return copy

    def _sinks(self, table_round: _Round) -> Callable[[BrokerTables], Awaitable[None]]:
        async def copy(tables: BrokerTables) -> None:
            if self._queues is not None and self._worker is not None:
                await table_round.sinks(self._queues, self._worker)

        return copy

    def _users(self, table_round: _Round) -> Callable[[BrokerTables], Awaitable[None]]:
        async def copy(tables: BrokerTables) -> None:
            if self._access is not None:
                await table_round.users(self._access)

        return copy

    def _round_ended(self, master: str, failures: dict[str, str]) -> None:
        """Emit each failure once. That no log is followed yet is so at every start: that is emitted when it lasts."""
        before, self.status.failures = self.status.failures, failures
        reported_failures, self._reported_failures = self._reported_failures, {}
        for part, reason in failures.items():
            is_reported = reported_failures.get(part) == reason if part == ALL_TABLES else part in reported_failures
            if not is_reported and (part in before or part != ALL_TABLES):
                self._events.emit("metadata not copied", part=part, master=master, reason=reason)
                is_reported = True
            if is_reported:
                self._reported_failures[part] = reason
        before_refusal, self.status.refused_commits = self.status.refused_commits, self._refused_commits.why
        if self.status.refused_commits and not before_refusal:
            self._events.emit("commits not taken", master=master, reason=self.status.refused_commits)
        if not failures:
            self.status.synced_ms = self._clock.wall_ms()


class _Round:
    """One copy of each table; what is not proven any more raises Unavailable and changes nothing."""

    def __init__(
        self,
        master: MasterTables,
        proof: Proof,
        follow_status: Callable[[], FollowStatus],
        clock: Clock,
        refused_commits: RefusedCommitsCore,
    ) -> None:
        self._master, self._proof, self._follow_status = master, proof, follow_status
        self._clock, self._refused_commits = clock, refused_commits
        self.is_original = proof.by_end

    async def topics(self, tables: BrokerTables) -> None:
        table = await self._master.topics(tables.topics.version)
        await self._check()
        if table is not None:
            tables.topics.replace(table)

    async def groups(self, tables: BrokerTables) -> None:
        table = await self._master.groups(tables.groups.version)
        await self._check()
        if table is not None:
            tables.groups.replace(table)

    async def offsets(self, tables: BrokerTables) -> None:
        offsets = tables.offsets
        most = 3 * offsets.most  # so many are committed, so many pulled, and so many have counters
        table, resets = await self._offsets(most)
        self._refused_commits.began(self._clock.now())
        is_any_sent, remaining = await self._send_commits(offsets, offsets.lacking(table, resets))
        if is_any_sent:
            table, resets = await self._offsets(most)
        merge = offsets.merge(table, resets)
        await in_slices(merge.steps(), self._clock)
        await self._check()
        await in_slices(offsets.become(merge), self._clock)
        if remaining:
            raise Unavailable("the master is still to be told of what was committed here", commits=remaining)
        await in_slices(self._refused_commits.ended(self._clock.now()), self._clock)

    async def _offsets(self, most: int) -> tuple[OffsetTable, ResetTable | None]:
        tables = await self._master.offsets(most)
        await self._check()
        return tables

    async def _send_commits(self, offsets: Offsets, lacking: Iterable[OffsetCommit | None]) -> tuple[bool, int]:
        """Send commits to the master. Returns whether any was sent, and how many remain for the next round, as the time
        is up."""
        ends_at = self._clock.now() + TELL_S
        pause_at, is_any_sent, remaining = self._clock.now() + SLICE_S, False, 0
        for commit in lacking:
            if self._clock.now() >= pause_at:  # there may be a million of which it need not be told
                await asyncio.sleep(0)
                pause_at = self._clock.now() + SLICE_S
            if commit is None or not self._refused_commits.is_due(commit):
                continue
            if self._clock.now() >= ends_at:
                remaining += 1
                continue
            response, is_any_sent = await self._master.send_commit(commit), True
            pause_at = self._clock.now() + SLICE_S
            if response.code in _SETTLED:
                offsets.disown(commit)
                self._refused_commits.taken(commit)
                continue
            # It stands in nobody's way. If its messages are in neither log any more, they will come to neither.
            is_beyond = offsets.is_beyond(commit.topic, commit.queue_id, commit.offset)
            remark = response.remark or f"code {response.code}"
            if self._refused_commits.refused(commit, remark, is_beyond=is_beyond):
                offsets.disown(commit)
        return is_any_sent, remaining

    async def delays(self, tables: BrokerTables) -> None:
        text, table = await self._master.delays()
        await self._check()
        tables.delays.take(text, table)

    async def queue_ends(self, queues: MasterQueues, worker: Worker, tables: BrokerTables) -> None:
        master_ends = await self._master.queue_ends(tables.topics.all)
        await self._check()
        if (deletion := queues.learn_deletions(master_ends.deleted)) is not None:
            await in_slices(tables.offsets.disowning(deletion.topics), self._clock)
            await worker.run(deletion.run)
        await worker.run(partial(queues.learn_ends, master_ends.ends, master_ends.at, master_ends.first))

    async def sinks(self, queues: MasterQueues, worker: Worker) -> None:
        rows = await self._master.sinks(queues.most_sinks)
        await self._check()
        await worker.run(partial(queues.learn_sinks, rows))

    async def users(self, access: AccessTable) -> None:
        users = await self._master.users()
        await self._check()
        if users is not None:
            access.replace(users)

    async def _check(self) -> None:
        """After a table came, right before it replaces what is here."""
        end = await self._master.log_end() if self._proof.by_end else None
        why = objection(self._proof, self._follow_status(), end)
        if why is not None:
            raise Unavailable(why)
