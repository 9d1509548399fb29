"""The queues that a consumer reads now, as a shell: each is pulled by a task and committed, and messages are given
back.

``DeliveryCore`` decides what is handed out, what is committed, and when something is due.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Set
from itertools import islice

from tallystick.errors import TallyError, Unavailable, UsageError
from tallystick.rocketmq.client import offsets
from tallystick.rocketmq.client.by_broker import ask_brokers
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.delivery import DeliveryCore, GiveBack
from tallystick.rocketmq.client.offsets import CommitResult, GroupOffset
from tallystick.rocketmq.client.pulling import PullPosition, QueueReader
from tallystick.rocketmq.client.ready import ReadyMessages
from tallystick.rocketmq.client.sendback import Late, send_back
from tallystick.rocketmq.client.subscription import TagFilter
from tallystick.rocketmq.client.unacked import QueueCore
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.tasks import watch

SENT_BACK_AT_ONCE = 64


class Assignment:
    """``ready`` hears of messages, of room for more, and of the error that ends a reader."""

    def __init__(self, context: BrokerContext, group: str, core: DeliveryCore, ready: ReadyMessages) -> None:
        self._context, self._group, self._core, self._ready = context, group, core, ready
        self._assigned_queues: dict[MessageQueue, _AssignedQueue] = {}
        self._nacked = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None  # never cut off: nobody would know what the broker stored

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._assigned_queues

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(sorted(self._assigned_queues))

    def __getitem__(self, queue: MessageQueue) -> QueueCore:
        """Returns a queue's core. Raises UsageError if the queue is not read."""
        if queue not in self._assigned_queues:
            raise UsageError("this consumer does not read the queue now", queue=queue)
        return self._assigned_queues[queue].core

    async def take_on(self, queue: MessageQueue, tags: TagFilter, start: str | int, *, gives_back: bool) -> None:
        """Take on a queue where the group stands, or begins at ``start`` (``offsets.start_group_offset``). Then
        ``begin``.

        Raises BrokerError, Unavailable.
        """
        group_offset = await offsets.start_group_offset(self._context, self._group, queue, start)
        core = self._core.assigned(
            PullPosition(queue, tags, group_offset.offset, mark=group_offset.mark), gives_back=gives_back
        )
        self._assigned_queues[queue] = _AssignedQueue(self, core, group_offset)

    def begin(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to pull these queues, which were taken on."""
        for queue in queues:
            self._begin(self._assigned_queues[queue])

    def keep_at_work(self, my_queues: Set[MessageQueue]) -> list[MessageQueue]:
        """Give up the queues that are not in ``my_queues``. Returns those that stay for now, as a message of them is
        worked on here: see ``DeliveryCore.leaving``."""
        leaving = []
        for queue, assigned_queue in self._assigned_queues.items():
            if queue in my_queues:
                self._core.stays(assigned_queue.core)
            else:
                leaving.append(assigned_queue.core)
        queues = [core.queue for core in self._core.leaving(leaving, self._context.clock.now())]
        if self._core.ready:
            self._ready.arrived.set()
        if self._core.room_made:
            self._ready.let_readers_go_on()
        return queues

    async def stop(self, queues: Collection[MessageQueue]) -> None:
        """Pull and hand out no more of these queues. What was handed out can still be acknowledged; ``give_up`` comes
        next."""
        leaving = [self._assigned_queues[queue] for queue in queues]
        for assigned_queue in leaving:
            assigned_queue.is_leaving = True
        tasks = [assigned_queue.task for assigned_queue in leaving if assigned_queue.task is not None]
        for task in tasks:
            task.cancel()
        self._core.revoking([assigned_queue.core for assigned_queue in leaving])
        await asyncio.gather(*tasks, return_exceptions=True)

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Commit the messages that are done, and forget the others: whoever has the queue next gets them."""
        cores = [self._assigned_queues[queue].core for queue in queues]
        if self._sending is not None:
            await asyncio.wait([self._sending])
        await self._send_back(self._core.give_back_now(cores, self._context.clock.now()))
        await self.commit_or_tell(queues)
        self._core.revoked(cores)
        for queue in queues:
            del self._assigned_queues[queue]
        self._ready.let_readers_go_on()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset in a queue. Raises UsageError."""
        core = self[queue]
        self._core.seek(core, offset)
        assigned_queue = self._assigned_queues[queue]
        assigned_queue.seeks += 1
        if assigned_queue.is_leaving:  # nobody would end its reader
            return
        assigned_queue.is_lost = False
        if assigned_queue.task is not None:
            assigned_queue.task.cancel()  # its pull may be held by the broker
            self._begin(assigned_queue)
        self._ready.let_readers_go_on()

    # Where the group stands

    async def commit(self, queues: Collection[MessageQueue] | None = None) -> None:
        """Commit each queue by itself: their brokers may differ. Raises BrokerError, Unavailable."""
        # Those of this moment: some may be given up before it is their turn.
        assigned_queues = {
            queue: self._assigned_queues[queue] for queue in (self._assigned_queues if queues is None else queues)
        }
        for failure in await ask_brokers(assigned_queues, lambda queue: self._commit(assigned_queues[queue])):
            raise failure

    async def commit_or_tell(self, queues: Collection[MessageQueue] | None = None) -> None:
        context, away = self._context, ("committing", self._group)
        try:
            await self.commit(queues)
        except TallyError as error:
            context.tell_outage("not committed", away, error, group=self._group)
        else:
            context.outages.ended(away)

    async def _commit(self, assigned_queue: _AssignedQueue) -> None:
        async with assigned_queue.committing:
            if await self._goes_elsewhere(assigned_queue):
                return
            offset, queue, mark = (
                assigned_queue.core.committable,
                assigned_queue.core.queue,
                assigned_queue.core.pull.mark,
            )
            # A commit that waited here while the queue was given up would pass over all that was not done.
            if assigned_queue.core.is_revoked:
                return
            # A broker that restarted may have forgotten what it had not saved, and another one never knew it.
            if assigned_queue.committed == offset and assigned_queue.connection == offsets.connection(
                self._context, queue
            ):
                return
            if assigned_queue.is_lost:
                raise Unavailable(
                    "this queue's topic was gone a moment ago: what was done is not committed", queue=queue
                )
            went_back, seeks = assigned_queue.went_back, assigned_queue.seeks
            result = await offsets.commit(self._context, self._group, queue, offset, mark=mark, went_back=went_back)
            if result.reset_to is None:
                assigned_queue.offset_confirmed(offset, result, seeks)
            else:
                await self._follow_reset(assigned_queue, offset, result.reset_to)

    async def _goes_elsewhere(self, assigned_queue: _AssignedQueue) -> bool:
        """Whether the group's offset is one of another member: then the offset of this one is not committed.

        While its connection was lost, or its queue goes, others may have gone on, or back on purpose. Who asks first
        repairs what a broker forgot, and undoes nothing that they did; nobody is asked about where a ``seek`` went.
        """
        core, queue = assigned_queue.core, assigned_queue.core.queue
        is_known = assigned_queue.connection == offsets.connection(self._context, queue)
        if is_known and (not assigned_queue.is_leaving or assigned_queue.committed == core.committable):
            return False
        if core.is_revoked or assigned_queue.is_lost or assigned_queue.is_sought or assigned_queue.went_back:
            return False
        seeks = assigned_queue.seeks
        group_offset = await offsets.query_group_offset(self._context, self._group, queue)
        if group_offset is None or core.is_revoked or assigned_queue.seeks != seeks:
            return False
        ours = core.committable
        # Of two counters that differ the lower one is of a slave that lags, or of a broker that lost it: it is told.
        is_others = (group_offset.resets, group_offset.offset) > (assigned_queue.resets, ours)
        if group_offset.offset == ours:
            assigned_queue.offset_confirmed(ours, group_offset, seeks)
        elif is_others and not assigned_queue.is_leaving:
            self._context.events.emit("offset moved", queue=queue, offset=ours, to=group_offset.offset)
            self.seek(queue, group_offset.offset)
            assigned_queue.offset_confirmed(group_offset.offset, group_offset, assigned_queue.seeks)
        return is_others and group_offset.offset != ours

    async def _follow_reset(self, assigned_queue: _AssignedQueue, offset: int, to: int) -> None:
        """Go on where an operator set the group. A master's response to a pull would say so, too, but no slave's."""
        queue = assigned_queue.core.queue
        assigned_queue.committed = None
        if assigned_queue.is_leaving or assigned_queue.core.is_revoked:
            return
        self._context.events.emit("offset moved", queue=queue, offset=offset, to=to)
        self.seek(queue, to)
        seeks = assigned_queue.seeks
        result = await offsets.commit(self._context, self._group, queue, to)  # that it was heard
        if result.reset_to is None:
            assigned_queue.offset_confirmed(to, result, seeks)

    # What was given back

    def nacked(self) -> None:
        self._nacked.set()

    async def keep_sending_back(self) -> None:
        """Send back what is due, for ever."""
        while True:
            wake_at = self._core.wake_at()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if wake_at is None else wake_at - self._context.clock.now()):
                    await self._nacked.wait()
            self._nacked.clear()
            actions = self._core.due(self._context.clock.now())
            self._ready.arrived.set()  # what is repeated here is ready
            self._sending = asyncio.create_task(self._send_back(actions))
            await asyncio.shield(self._sending)

    async def _send_back(self, actions: Collection[GiveBack]) -> None:
        rest = iter(actions)
        while some := list(islice(rest, SENT_BACK_AT_ONCE)):
            await asyncio.gather(*(self._send_one_back(action) for action in some))
            if self._core.room_made:
                self._ready.let_readers_go_on()

    async def _send_one_back(self, action: GiveBack) -> None:
        try:
            late = await send_back(self._context, self._group, action.message, action.delay_s, action.copy)
        except TallyError as error:
            message = action.message
            self._context.events.emit("not sent back", queue=message.queue, offset=message.offset, reason=str(error))
            self._core.not_given_back(action)
            self._ready.arrived.set()
        else:
            if late is None:
                self._core.given_back(action)
            else:
                self._stored_late(action, late)

    def _stored_late(self, action: GiveBack, late: Late) -> None:
        message, emit = action.message, self._context.events.emit
        if not late.is_waited_for:
            self._core.given_back(action)
        elif self._core.stored_late(action, late.copy, self._context.clock.now()):
            if late.copy != action.copy:  # told once
                emit("sent back, not yet everywhere", queue=message.queue, offset=message.offset, reason=late.status)
            return
        emit("sent back, not everywhere", queue=message.queue, offset=message.offset, reason=late.status)

    # For the readers

    def _begin(self, assigned_queue: _AssignedQueue) -> None:
        reader = QueueReader(self._context, self._group, assigned_queue.core.queue, assigned_queue)
        assigned_queue.task = asyncio.create_task(reader.run())
        watch([assigned_queue.task], self._ready.fail)

    async def find_again(self, assigned_queue: _AssignedQueue) -> None:
        """The topic of a queue exists again: go on where the group stands there, or else at the first message.

        A topic that was made anew counts its messages from 0, and no group has an offset in it. Raises BrokerError,
        Unavailable.
        """
        queue, before = assigned_queue.core.queue, assigned_queue.committed
        group_offset = await offsets.start_group_offset(self._context, self._group, queue, "first")
        if group_offset.is_new or not group_offset.offset or group_offset.offset != before:
            at = assigned_queue.core.pull.next_offset
            self._context.events.emit(
                "queue made anew", group=self._group, queue=queue, offset=at, to=group_offset.offset
            )
            self._core.seek(assigned_queue.core, group_offset.offset)
        assigned_queue.offset_confirmed(group_offset.offset, group_offset, assigned_queue.seeks)
        assigned_queue.is_lost = False

    def has_room(self, queue: QueueCore) -> bool:
        return self._core.may_pull(queue)

    async def await_room(self, queue: QueueCore) -> None:
        """Return when ``queue`` may be pulled."""
        while not self._core.may_pull(queue):
            self._ready.arrived.set()  # whoever waits for a whole batch waits no longer
            self._ready.room.clear()
            await self._ready.room.wait()

    def responded(self, pull: PullPosition, response: Command) -> bool:
        has_messages = self._core.responded(pull, response)
        if has_messages:
            self._ready.arrived.set()
        return has_messages


class _AssignedQueue:
    """One queue with its reader, and the offset that its broker has."""

    def __init__(self, assignment: Assignment, core: QueueCore, group_offset: GroupOffset) -> None:
        self.core = core
        self.committed: int | None = group_offset.offset  # the broker's; None: it is not known
        self.connection = group_offset.connection  # over which a broker was told that offset, or said it
        self.resets = group_offset.resets  # the highest counter of resets that a broker told
        self.seeks = self._confirmed_seeks = 0
        self.is_leaving = False  # it is read no more, and soon another member's
        self.committing = asyncio.Lock()  # a later offset is never overtaken by an earlier one
        self.is_lost = False  # its topic was gone: its offsets may be those of another queue now
        self.task: asyncio.Task[None] | None = None
        self._assignment = assignment

    @property
    def went_back(self) -> bool:
        """Whether the offset is lower than the committed one, after a ``seek`` or as a broker said so."""
        return self.committed is not None and self.core.committable < self.committed

    @property
    def is_sought(self) -> bool:
        """Whether brokers have still to hear of a ``seek``."""
        return self.seeks != self._confirmed_seeks

    def offset_confirmed(self, offset: int, source: GroupOffset | CommitResult, seeks: int) -> None:
        """A broker has this offset; ``seeks`` seeks had been made when it was sent."""
        self.committed, self.connection, self._confirmed_seeks = offset, source.connection, seeks
        self.resets = max(self.resets, source.resets)

    async def next_pull(self) -> PullPosition:
        if self.is_lost:
            await self._assignment.find_again(self)
        if not self._assignment.has_room(self.core):
            await self._assignment.await_room(self.core)
        return self.core.pull

    def responded(self, pull: PullPosition, response: Command) -> bool:
        return self._assignment.responded(pull, response)

    def topic_gone(self) -> None:
        self.is_lost = True
