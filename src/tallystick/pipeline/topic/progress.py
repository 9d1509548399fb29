"""The offsets of a consumer group that a streaming query moves behind itself, for others to see how far it is.

Nothing is read by them, and no row hangs on them: the checkpoint has where the query goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from uuid import uuid4

from tallystick.errors import BrokerError, TallyError, Unavailable
from tallystick.pipeline.notes import note
from tallystick.pipeline.topic.brokers import TopicClient
from tallystick.pipeline.topic.offsets import Positions
from tallystick.pipeline.topic.schema import FORMAT
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import UnregisterClientHeader, UpdateOffsetHeader
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, MessageQueue, RequestCode
from tallystick.runtime.tasks import together

AT_ONCE = 64  # queues
MOMENT_S = 1.0  # how long a batch waits for the commits


class GroupOffsets:
    """The offsets of one group in all queues of a query. ``close`` it before the client."""

    def __init__(self, client: TopicClient, group: str) -> None:
        self._client, self._group = client, group
        self._client_id = f"tally-spark#{uuid4().hex[:12]}"
        self._known_to: set[str] = set()  # brokers that have the group
        self._committed: dict[MessageQueue, int] = {}
        self._positions: Positions = {}  # where the group is to be
        self._task: asyncio.Task[None] | None = None

    async def move(self, positions: Positions) -> None:
        """Say that all before the positions is read. What takes longer than a moment goes on behind the next batch."""
        self._positions = positions
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._commit_all())
        await asyncio.wait((self._task,), timeout=MOMENT_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _commit_all(self) -> None:
        """Until the group is where it is to be by then; a queue whose broker fails waits for the next batch."""
        tried: Positions = {}
        while tried != self._positions:
            tried = self._positions
            moved = {queue: at for queue, at in tried.items() if at > self._committed.get(queue, -1)}
            brokers = dict.fromkeys(queue.broker for queue in moved)
            failures = await together((self._introduce(broker) for broker in brokers), AT_ONCE)
            failures += await together((self._commit(queue, at) for queue, at in moved.items()), AT_ONCE)
            errors = [error for error in failures if error is not None]
            if errors:
                note(FORMAT, f"offsets of the group are not committed now, but after the next batch: {errors[0]}")

    async def _introduce(self, broker: str) -> TallyError | None:
        """Have a broker make the group, as it does for a consumer that comes: brokers commit for none that they do not
        know. Nobody stays in the group."""
        if broker in self._known_to:
            return None
        heartbeat = Heartbeat(self._client_id, (), (ConsumerGroup(self._group),))
        leave = UnregisterClientHeader(client_id=self._client_id, consumer_group=self._group).to_fields()
        try:
            for command in (
                request(RequestCode.HEART_BEAT, {}, dialect.write(heartbeat, quoted=True)),
                request(RequestCode.UNREGISTER_CLIENT, leave),
            ):
                require_success((await self._client.ask_set(broker, command)).command, group=self._group)
        except (BrokerError, Unavailable) as error:
            return error
        self._known_to.add(broker)
        return None

    async def _commit(self, queue: MessageQueue, offset: int) -> TallyError | None:
        header = UpdateOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker=queue.broker,
        )
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_fields())
        try:
            require_success((await self._client.ask_set(queue.broker, command)).command, queue=queue)
        except (BrokerError, Unavailable) as error:
            return error
        self._committed[queue] = offset
        return None
