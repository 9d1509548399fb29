"""A consumer's queues follow its share: lost queues are given up first, then gained ones are taken on.

Listeners are called while they can still act: for lost queues before their last commit, for gained ones before any
message of them is pulled. In ordered reading a lost queue stays, with its lock, until the loop is done with its message
(``RebalancePushImpl.removeUnnecessaryMessageQueue``).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.client.assignment import Assignment
from tallystick.rocketmq.client.by_broker import ask_broker_of, by_broker
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.locking import RENEW_S, QueueLocks
from tallystick.rocketmq.client.sharing import Sharing
from tallystick.rocketmq.client.subscription import ALL_TAGS, TagFilter
from tallystick.rocketmq.wire.values import MessageQueue

# Told which queues come or go; what it returns is awaited.
QueueListener = Callable[[list[MessageQueue]], Awaitable[None] | None]


@dataclass
class _ListenerCall:
    """A call of a listener."""

    context: BrokerContext
    is_over: bool = False


_LISTENER_CALL: ContextVar[_ListenerCall | None] = ContextVar("the listener that runs", default=None)


def is_in_listener(context: BrokerContext) -> bool:
    """Whether the caller is a listener of this client, on whatever thread. A close waits for listeners, so it must not
    wait for its caller."""
    call = _LISTENER_CALL.get()
    return call is not None and call.context is context and not call.is_over


class Rebalancing:
    """``changed`` is set when the group's members are not the same any more. ``start``: where a new group begins."""

    def __init__(
        self,
        context: BrokerContext,
        *,
        group: str,
        filters: Mapping[str, TagFilter],
        sharing: Sharing,
        assignment: Assignment,
        locks: QueueLocks | None,
        start: str | int,
        gives_back: bool,
        on_assigned: QueueListener | None,
        on_revoked: QueueListener | None,
    ) -> None:
        self.changed = asyncio.Event()
        self._context, self._group, self._filters, self._start = context, group, filters, start
        self._sharing, self._assignment, self._gives_back = sharing, assignment, gives_back
        self._locks = locks
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._listener_error: Exception | None = None  # by a listener, perhaps as a broker would

    async def keep_sharing(self) -> None:
        """Share out queues, for ever. Raises what a listener raises."""
        while True:
            with contextlib.suppress(TimeoutError):
                pause_s = self._sharing.pause_s
                async with asyncio.timeout(pause_s if self._locks is None else min(pause_s, RENEW_S)):
                    await self.changed.wait()
            self.changed.clear()
            try:
                await self.share_out()
            except TallyError as error:
                if error is self._listener_error:
                    raise
                if isinstance(error, BrokerError):
                    self._sharing.refused(error)
                else:
                    self._sharing.not_reached(error)

    async def share_out(self) -> None:
        """Take on and give up queues. Raises NoSuchTopic, BrokerError, Unavailable, and what a listener raises."""
        self._sharing.begin()
        try:
            share = await self._sharing.my_queues()
        except TallyError:  # no master was asked for locks
            await self._give_up(self._expired_queues())
            raise
        busy_queues = [] if share is None or self._locks is None else self._assignment.keep_at_work(set(share))
        my_queues = await self._lock(list(self._assignment) if share is None else [*share, *busy_queues])
        kept_queues = set(my_queues)
        lost_queues = [queue for queue in self._assignment if queue not in kept_queues]
        await self._give_up(lost_queues)
        if share is None:
            return
        gained_queues = [queue for queue in my_queues if queue not in self._assignment]
        failure = await self._take_on_all(gained_queues)
        queues = list(self._assignment)
        if lost_queues or gained_queues:
            self._context.events.emit("queues shared out", group=self._group, queues=len(queues))
        self._sharing.end(all_reached=failure is None and not busy_queues and len(my_queues) == len(share))
        if failure is not None:
            if not queues or isinstance(failure, BrokerError):
                raise failure
            self._context.events.emit("queue not reached", group=self._group, reason=str(failure))

    async def give_up_all(self, at_work: Set[MessageQueue]) -> None:
        """Give up all queues. Those ``at_work`` stay locked until ``unlock_all``, or until their locks end at the
        master. Raises what a listener raises, when all is given up."""
        try:
            await self._give_up(list(self._assignment), at_work)
        finally:
            await self.unlock_all(at_work)

    async def unlock_all(self, kept_queues: Set[MessageQueue] = frozenset()) -> None:
        """Unlock all queues but ``kept_queues``."""
        if self._locks is not None:
            await self._locks.unlock_all(kept_queues)

    async def _lock(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Lock queues. Returns those that no other member reads."""
        return queues if self._locks is None else await self._locks.lock(queues, set(self._assignment))

    def _expired_queues(self) -> list[MessageQueue]:
        """Returns the queues whose locks another member may have by now."""
        here = list(self._assignment)
        return [] if self._locks is None else sorted(set(here).difference(self._locks.live(here)))

    async def _take_on_all(self, queues: Collection[MessageQueue]) -> TallyError | None:
        """Those of a broker are read as soon as it has said where the group stands: another one may be silent.

        Returns why one of them could not be taken on, a refusal before all: the rest can be read, it is tried again.
        """
        failures: list[TallyError] = []
        tasks = [asyncio.create_task(self._take_on_of(queues)) for queues in by_broker(queues).values()]
        try:
            for outcome in asyncio.as_completed(tasks):
                new_queues, broker_failures = await outcome
                failures += broker_failures
                try:
                    await self._call_listener(self._on_assigned, new_queues)
                finally:
                    self._assignment.begin(new_queues)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        refusals = [failure for failure in failures if isinstance(failure, BrokerError)]
        return next(iter(refusals + failures), None)

    async def _take_on_of(self, queues: Sequence[MessageQueue]) -> tuple[list[MessageQueue], list[TallyError]]:
        """Take on queues of one broker. Returns those that it took on, and why it could not take on others."""
        failures = await ask_broker_of(queues, self._take_on)
        return [queue for queue in queues if queue in self._assignment], failures

    async def _take_on(self, queue: MessageQueue) -> None:
        tags = self._filters.get(queue.topic, ALL_TAGS)
        start = "first" if queue.topic == self._sharing.retry_topic else self._start
        await self._assignment.take_on(queue, tags, start, gives_back=self._gives_back)
        self._sharing.admitted()

    async def _give_up(self, queues: Collection[MessageQueue], at_work: Set[MessageQueue] = frozenset()) -> None:
        if queues:
            await self._assignment.stop(queues)
            try:
                await self._call_listener(self._on_revoked, queues)
            finally:
                await self._assignment.give_up(queues)
                if self._locks is not None:
                    await self._locks.unlock([queue for queue in queues if queue not in at_work])

    async def _call_listener(self, listener: QueueListener | None, queues: Iterable[MessageQueue]) -> None:
        own_queues = sorted(queue for queue in queues if queue.topic in self._filters)
        if listener is None or not own_queues:
            return
        call = _ListenerCall(self._context)
        token = _LISTENER_CALL.set(call)
        try:
            if inspect.isawaitable(result := listener(own_queues)):
                await result
        except Exception as error:
            self._listener_error = error
            raise
        finally:
            call.is_over = True  # for tasks that it began, too
            _LISTENER_CALL.reset(token)
