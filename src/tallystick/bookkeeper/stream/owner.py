"""The shell of ``RollOverCore``: what an owner has under way (Q18, Q19).

Entries of one loop tick go to the ledger together. What the core wants done is done by one task at a time; there is
none while a ledger is open and takes entries, so that thousands of idle streams cost their memory alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from tallystick.bookkeeper.stream.append_flow import AppendFlow
from tallystick.bookkeeper.stream.context import StreamContext
from tallystick.bookkeeper.stream.due_times import DueTimes
from tallystick.bookkeeper.stream.expiry import expire_messages
from tallystick.bookkeeper.stream.ledger_steps import LedgerSteps, failure_of
from tallystick.bookkeeper.stream.opening import OpenedStream
from tallystick.bookkeeper.stream.quota import BacklogQuota
from tallystick.bookkeeper.stream.rollover import (
    Action,
    EndLedger,
    Failure,
    GiveUp,
    Limits,
    ListLedger,
    Look,
    MakeLedger,
    Open,
    Phase,
    RollOverCore,
    Settle,
    Wait,
)
from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.bookkeeper.stream.stalls import Stalls
from tallystick.bookkeeper.stream.state import StreamCounts, StreamState
from tallystick.bookkeeper.stream.trim import Keep, trim_stream
from tallystick.bookkeeper.wire.ledger_runs import changed
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import NO_ENTRY, LedgerId
from tallystick.errors import StreamClosed, StreamError, StreamFenced, TallyError
from tallystick.runtime.tasks import watch

AGE_SPREAD = 0.05  # of its age a ledger may get older, so that not all streams roll over at one time
TRIM_EVERY_S = 60.0  # where retention is limited

T = TypeVar("T")


class StreamOwner:
    """See the module. One for each open handle."""

    __slots__ = ("_context", "_core", "_created_ms", "_due_times", "_looks", "_loop", "_pause", "_quota", "_settings",
                 "_stalls", "_steps", "_tasks", "_todo", "_trims", "_turn", "_upkeep_at", "_working", "flow",
                 "keep", "lease", "stored_list", "stream")  # fmt: skip

    def __init__(
        self,
        context: StreamContext,
        stream: str,
        settings: StreamSettings,
        opened: OpenedStream,
        due_times: DueTimes,
    ) -> None:
        self._context, self.stream, self._settings, self._due_times = context, stream, settings, due_times
        self.lease, self.stored_list = opened.lease, opened.stored_list
        self._loop, clock = context.context.loop, context.context.clock
        limits = Limits(
            settings.max_entries_per_ledger,
            settings.max_ledger_bytes,
            settings.max_ledger_age_s,
            settings.max_pending_s,
        )
        ledgers = self.stored_list.info.ledgers
        newest = ledgers[-1].ledger if ledgers else NO_LEDGER
        self._core = RollOverCore(limits, newest, clock.now(), is_open=opened.writer is not None)
        self.flow = AppendFlow(
            stream,
            self._core,
            opened.writer,
            opened.last,
            max_pending_bytes=settings.max_pending_bytes,
            loop=self._loop,
            clock=clock,
            began=self.begin,
            failed=self._writer_failed,
            waiting_began=self._waiting_began,
        )
        answer_s = context.context.settings.add_timeout_s
        self._stalls = Stalls(self.flow, self._core, patience_s=settings.max_pending_s, answer_s=answer_s)
        self._quota: BacklogQuota | None = None
        if settings.backlog_quota_bytes != UNLIMITED:
            self._quota = BacklogQuota(
                context,
                stream,
                settings,
                self.stored_list,
                self.flow,
                counted=self._counted,
                wake=self._wake,
                give_way=self._give_way,
            )
        self._steps = LedgerSteps(context, stream, settings, self._core, self.lease, self.stored_list)
        self._looks = self._trims = False  # what is to be done beside actions of the core
        self.keep: Keep = _keep_nothing  # see ``trim_stream``
        self._todo: deque[Action] = deque()
        self._turn = asyncio.Lock()
        self._working: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._pause: asyncio.Future[None] | None = None
        self._created_ms = clock.wall_ms()  # of the newest ledger
        self._upkeep_at = clock.now() + TRIM_EVERY_S
        self.lease.lost, self.lease.regained = self._lease_lost, self._lease_regained
        if not self.lease.is_held:
            self._lease_lost()
        self._set_due()

    # -- what its handle shows ----------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self._core.phase

    @property
    def ledger(self) -> LedgerId:
        """The newest ledger that is listed."""
        return self._core.ledger

    def counts(self) -> StreamCounts:
        """Returns what ``state`` is made of."""
        core, flow, writer, info = self._core, self.flow, self.flow.writer, self.stored_list.info
        last, ended = flow.last_confirmed, self._steps.ended  # which is not yet listed so
        return StreamCounts(
            info,
            StreamState.TERMINATED if info.terminated is not None else StreamState(core.state),
            Position(core.ledger, NO_ENTRY) if last == EARLIEST else last,
            self._created_ms,
            added=flow.added,
            current_entries=core.entries,
            current_size=core.size,
            confirmed_entries=flow.confirmed + (0 if ended is None else ended.entries),
            confirmed_size=(0 if writer is None else writer.length) + (0 if ended is None else ended.size),
            pending=len(flow),
        )

    # -- work ---------------------------------------------------------------------------------------------------------

    def begin(self, actions: list[Action]) -> None:
        """Do these, after what is under way."""
        self._todo.extend(actions)
        if self._todo:
            self._begin_work()

    def _begin_work(self) -> None:
        if self._working is None:
            self._working = self._loop.create_task(self._work())
            watch([self._working], self._broke)

    async def _work(self) -> None:
        try:
            while self._todo or self._looks or self._trims or self._has_to_measure():
                async with self._turn:  # for each, so that who waits to be alone has a turn between
                    await self._drain()
                    if self._looks:
                        await self._look_at_list()
                    elif self._trims:
                        await self._trim()
                    elif self._has_to_measure():
                        await self._do_upkeep(self._measure)
        finally:
            self._working = None

    def _broke(self, error: Exception) -> None:
        """Nobody does the work any more: a fault of ours."""
        failure = StreamError("a fault in the stream's owner", stream=self.stream, cause=repr(error))
        self.flow.refuse(failure)
        self.flow.fail_all(failure)

    def _writer_failed(self, error: TallyError) -> None:
        self._steps.why = error
        self.begin(self._core.failed(failure_of(error), self._now()))

    def _waiting_began(self) -> None:
        if not self._stalls.is_watched:
            self._set_due()

    async def alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` when nothing else is under way, and to its end, whatever becomes of the caller."""

        async def work_alone() -> T:
            async with self._turn:
                await self._drain()
                return await work()

        task = self._loop.create_task(work_alone())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        watch([task], lambda error: None)  # its caller may be gone
        return await asyncio.shield(task)

    async def finish(self, actions: list[Action]) -> None:
        """Do these now: for ``work`` that is ``alone``."""
        self._todo.extend(actions)
        await self._drain()

    async def _drain(self) -> None:
        while self._todo:
            self._todo.extend(await self._do(self._todo.popleft()))

    async def _do(self, action: Action) -> list[Action]:
        if isinstance(action, EndLedger):
            return await self._steps.end(self.flow.writer)
        if isinstance(action, Look):
            return await self._steps.look(action.ledger, self.flow.confirmed)
        if isinstance(action, Settle):
            self._settle(action)
        elif isinstance(action, MakeLedger):
            return await self._steps.make()
        elif isinstance(action, ListLedger):
            return await self._steps.store(action.ledger)
        elif isinstance(action, Open):
            self._open()
        elif isinstance(action, Wait):
            await self._wait(action.seconds)
            return self._core.waited()
        else:
            self._give_up(action)
        return []

    def _settle(self, end: Settle) -> None:
        self.flow.settle(end.last)
        self._steps.ended = StreamLedger(end.ledger, end.last + 1, end.length, self._context.context.clock.wall_ms())

    def _open(self) -> None:
        writer = self._steps.take_next()
        self._created_ms = self._context.context.clock.wall_ms()
        self._emit("stream rolled over", ledger=writer.id)
        self._trims = self._settings.has_upkeep
        self._set_due()
        self.flow.go_on(writer)

    async def _wait(self, seconds: float) -> None:
        self._pause = self._loop.create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._pause
        except TimeoutError:
            pass
        finally:
            self._pause = None

    def _give_up(self, end: GiveUp) -> None:
        if not end.is_fenced:
            assert self._steps.why is not None, "a step failed"
            return self.flow.fail_all(self._steps.why)
        if not isinstance(self.flow.refusal, StreamFenced):
            self._emit("stream fenced", ledger=self._core.ledger, reason=self._steps.why)
        self.flow.refuse(self._fenced())
        self.flow.stop()
        self._steps.stop()
        self._context.leases.give_back_soon(self.lease)
        self.flow.fail_all(self._fenced())

    def _fenced(self) -> StreamFenced:
        error = StreamFenced(stream=self.stream)
        error.ambiguous = False
        return error

    # -- the end ------------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Try nothing a second time any more."""
        self._core.hurried()
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    async def end(self) -> None:
        """End the newest ledger: for ``work`` that is ``alone``. Raises StreamFenced, or what hinders it now."""
        await self.finish(self._core.stopped(self._now()))
        if self._core.phase is Phase.FENCED:
            raise self._fenced()
        if self._core.phase is not Phase.ENDED:
            assert self._steps.why is not None, "a step failed"
            raise copy.copy(self._steps.why)
        if (refusal := self.flow.refusal) is not None and self.flow:
            self.flow.fail_all(refusal)  # the ledger failed before it had these, and there is no next one

    async def end_unless_fenced(self) -> None:
        """The same for who has nothing more to do here: another owner ends the ledger then."""
        with contextlib.suppress(StreamFenced):
            await self.end()

    async def roll_over(self) -> None:
        """See ``Stream.roll_over``."""
        if self.flow.refusal is not None:
            raise copy.copy(self.flow.refusal)
        await self.flow.all_encoded()
        self.flow.flush()
        self.begin(self._core.asked(self._now()))
        if self._working is not None:
            await asyncio.shield(self._working)
        if (failure := self.flow.refusal or (None if self._core.is_open else self._steps.why)) is not None:
            raise copy.copy(failure)

    async def settled(self) -> LedgerId:
        """Wait until a ledger takes entries, and all before it are closed. Returns the ledger.

        Raises what hinders that now, and why nothing is taken any more.
        """

        async def look() -> LedgerId:
            if not self._core.is_open:
                await self.finish(self._core.appended(self._now()))
            if (failure := self.flow.refusal or (None if self._core.is_open else self._steps.why)) is not None:
                raise copy.copy(failure)
            return self._core.ledger

        return await self.alone(look)

    def release(self, failure: TallyError) -> None:
        """Hear nothing more; appends that are left fail."""
        self._due_times.forget(self)
        self.lease.lost = self.lease.regained = None
        self.flow.refuse(failure)
        self.flow.fail_all(failure)
        self.flow.stop()
        self._steps.stop()

    def _lease_regained(self) -> None:
        """Another owner may have come and gone: then the list is another, and this one owns nothing."""
        self._looks = True
        self._begin_work()

    async def _look_at_list(self) -> None:
        self._looks = False
        try:
            async with self._context.leases.looks:
                is_unchanged = await self.stored_list.is_unchanged()
            if not is_unchanged:
                self._todo.extend(self._core.lost())
        except TallyError as error:  # the next append finds out
            self._emit("stream step failed", phase="the lease was lost for a while", reason=error)

    def _lease_lost(self) -> None:
        self.begin(self._core.lost())

    # -- time ---------------------------------------------------------------------------------------------------------

    def due(self) -> None:
        """For ``DueTimes``: the ledger may be too old, or others for retention, or the backlog is to be measured."""
        now = self._now()
        if self._stalls.is_over(now):
            self._steps.why = self._stalls.end_ledger()
        self.begin(self._core.aged(now))
        if self._settings.has_upkeep and self._core.is_open and now >= self._upkeep_at:
            self._trims, self._upkeep_at = True, now + TRIM_EVERY_S
        if self._trims or self._has_to_measure():
            self._begin_work()
        self._set_due()

    def _set_due(self) -> None:
        now, at = self._now(), math.inf
        if self._core.is_open:
            spread_s = self._settings.max_ledger_age_s * AGE_SPREAD * self._context.context.random.random()
            at = max(self._core.due_at + spread_s, now)
            if at == now and not self._core.entries:
                at = math.inf  # it stays while it is empty, and is rolled over with the next append
            if self._settings.has_upkeep:
                at = min(at, self._upkeep_at)
        if self._quota is not None and self._quota.due_at > now:  # else it comes with the work that is under way
            at = min(at, self._quota.due_at)
        if (at := min(at, self._stalls.due_at(now))) < math.inf:
            self._due_times.set(self, at)

    async def trim(self) -> list[LedgerId]:
        """Let messages expire, and drop ledgers, as the settings say: for ``work`` that is ``alone``. Returns the
        ledgers that left the list."""
        context, stored_list, settings, give_way = self._context, self.stored_list, self._settings, self._give_way
        await expire_messages(context, self.stream, stored_list, settings, give_way)
        if self._quota is not None:
            await self._quota.measure()
        return await trim_stream(context, self.stream, stored_list, settings, keep=self.keep, give_way=give_way)

    async def _give_way(self) -> None:
        """For upkeep that takes long: do first what appends wait for. Raises StreamClosed, StreamFenced: nothing more
        is to be done here."""
        await self._drain()
        if isinstance(self.flow.refusal, StreamClosed | StreamFenced):
            raise copy.copy(self.flow.refusal)

    async def _trim(self) -> None:
        planned_at, self._trims, self._upkeep_at = self._upkeep_at, False, math.inf
        if self._core.is_open:  # else the next ledger brings it up again
            await self._do_upkeep(self.trim)
        now = self._now()
        self._upkeep_at = planned_at if planned_at > now else now + TRIM_EVERY_S  # it may have taken longer than that
        self._set_due()

    def _has_to_measure(self) -> bool:
        return self._quota is not None and self._quota.is_due and self.flow.refusal is None

    async def _measure(self) -> None:
        assert self._quota is not None
        await self._quota.measure()
        self._set_due()

    def _wake(self) -> None:
        """The backlog is to be measured."""
        if self._has_to_measure():
            self._begin_work()
        else:
            self._set_due()

    def _counted(self) -> StreamInfo:
        """Returns the list with what its newest ledger has by now."""
        counts = self.counts()
        info = counts.info
        if not info.ledgers or info.ledgers[-1].is_closed:
            return info
        newest = info.ledgers[-1]._replace(entries=counts.confirmed_entries, size=counts.confirmed_size)
        return replace(info, ledgers=changed(info.ledgers, {newest.ledger: newest}))

    async def _do_upkeep(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except StreamFenced as error:
            self._steps.why = error
            self._todo.extend(self._core.failed(Failure.FENCED, self._now()))
        except StreamClosed:
            pass  # the next owner does it
        except TallyError as error:
            self._emit("stream not trimmed", reason=error)

    # -- short ones ---------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return self._context.context.clock.now()

    def _emit(self, kind: str, **fields: object) -> None:
        self._context.context.events.emit(kind, stream=self.stream, **fields)


async def _keep_nothing(up_to: Position) -> None:
    """Does nothing: no entry says more than it is."""
