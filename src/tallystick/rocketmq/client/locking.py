"""Locks of queues at their masters, for consumption in order: no two members of a group have one queue.

Members share queues out each by itself, so for a moment two may think that a queue is theirs. A master gives a lock to
one of them, for 60 s from when it was last asked for (``ConsumerManageProcessor``, ``RebalanceLockManager``). Who gets
no response for half of that time has it no more: another member may reach the master (``ProcessQueue.isLockExpired``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Set

from tallystick.errors import BrokerUnavailable, TallyError
from tallystick.rocketmq.client.by_broker import by_broker
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import LockRequest, LockResponse
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, RequestCode

RENEW_S = 20.0  # how often a lock is asked for again
LIVE_S = 30.0  # without a response a lock counts as lost: well before its master gives it to another member
LOCK_S = 60.0  # a master gives a lock to another member then


class QueueLocks:
    """The locks of one group's member.

    A master knows members as clients. A consumer that is closed while its loop is at a message keeps that queue, and a
    later one of the same client would get the lock, and unlock it: ``context.lockers`` tells whose each lock is here.
    """

    def __init__(self, context: BrokerContext, group: str) -> None:
        self._context, self._group = context, group
        self._requested_queues: set[MessageQueue] = set()  # asked for and not unlocked
        self._requested_at: dict[MessageQueue, float] = {}  # when those were asked for that this member has

    async def lock(self, queues: Iterable[MessageQueue], held_queues: Set[MessageQueue]) -> list[MessageQueue]:
        """Take or keep the locks of ``queues``. Returns those that this member has now.

        Of a master that does not answer it has those of ``held_queues``, for ``LIVE_S``.
        """
        queues = [queue for queue in queues if not self._is_kept(queue)]
        self._requested_queues.update(queues)
        self._context.lockers.update(((self._group, queue), self) for queue in queues)
        asks = [self._lock(broker, some, held_queues) for broker, some in by_broker(queues).items()]
        return [queue for locked_queues in await asyncio.gather(*asks) for queue in locked_queues]

    def live(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Returns the queues whose locks this member may still have, whether or not their masters can be reached."""
        now = self._context.clock.now()
        return [queue for queue in queues if now - self._requested_at.get(queue, -LIVE_S) < LIVE_S]

    async def unlock_all(self, kept_queues: Set[MessageQueue] = frozenset()) -> None:
        """Unlock all queues but ``kept_queues``, also those whose unlocking was interrupted."""
        await self.unlock(sorted(self._requested_queues.difference(kept_queues)))

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give the locks back. Where no master can be reached others wait until the locks end."""
        lockers = self._context.lockers
        ours = [queue for queue in queues if lockers.get((self._group, queue)) is self]
        asks = [self._ask(broker, RequestCode.UNLOCK_BATCH_MQ, some) for broker, some in by_broker(ours).items()]
        for result in await asyncio.gather(*asks, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, TallyError):
                raise result
        self._requested_queues.difference_update(queues)
        for queue in queues:
            self._requested_at.pop(queue, None)
            if lockers.get((self._group, queue)) is self:
                del lockers[self._group, queue]

    def _is_kept(self, queue: MessageQueue) -> bool:
        """Whether an earlier consumer of this client may still be at a message of it."""
        other = self._context.lockers.get((self._group, queue))
        if not isinstance(other, QueueLocks) or other is self:
            return False
        return self._context.clock.now() - other._requested_at.get(queue, -LOCK_S) < LOCK_S

    async def _lock(
        self, broker: str, queues: list[MessageQueue], held_queues: Set[MessageQueue]
    ) -> list[MessageQueue]:
        context, requested_at, away = self._context, self._context.clock.now(), ("locking", self._group, broker)
        try:
            response = await self._ask(broker, RequestCode.LOCK_BATCH_MQ, queues)
            locked_queues = set(dialect.read_as(bytes(response.body), LockResponse).queues)
        except TallyError as error:
            context.tell_outage("queues not locked", away, error, group=self._group, broker=broker)
            return self.live(queue for queue in queues if queue in held_queues)
        context.outages.ended(away)
        self._requested_at.update((queue, requested_at) for queue in queues if queue in locked_queues)
        return [queue for queue in queues if queue in locked_queues]

    async def _ask(self, broker: str, code: RequestCode, queues: list[MessageQueue]) -> Command:
        address = (await self._context.routes.find(queues[0].topic)).master(broker)
        if address is None:
            raise BrokerUnavailable("this broker has no master now", broker=broker)
        body = dialect.write(LockRequest(self._context.client_id, self._group, queues), quoted=True)
        timeout_s = self._context.settings.request_timeout_s
        return require_success(
            await self._context.remoting.ask(address, request(code, {}, body), timeout_s), broker=broker
        )
