"""A message given back to its broker: stored once more, in the retry topic of the group, to be delivered again.

The group's consumers read that topic too. A broker that has delays keeps it back for the shortest of them; one of ours
has none, and so the consumer itself waited before. After too many times (``retryMaxTimes`` of the group, 16) the broker
puts the message aside into ``%DLQ%<group>``, which nobody reads by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tallystick.errors import BrokerUnavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.wire.headers import SendBackHeader
from tallystick.rocketmq.wire.own_headers import SendBackResponse
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import PutStatus, RequestCode

# The original's delay levels from 1 on; level 0 would let the broker choose.
LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


@dataclass(frozen=True)
class Late:
    """A broker has stored it at the physical offset ``copy``; ``status`` says what its disk or slaves are late with,
    ``disk_late`` that its disk is, too."""

    copy: int
    status: str | None
    disk_late: bool

    @property
    def is_waited_for(self) -> bool:
        """Whether the copy may soon be safe, or exists nowhere yet. It is not if the disk has it and the broker waits
        for no slave (H10), as nobody knows for how long that is."""
        return self.disk_late or self.status != PutStatus.SLAVE_NOT_AVAILABLE.name


def delay_level(delay_s: float) -> int:
    """Returns the level of the shortest delay that is not below this one; the longest, if all are below it."""
    return min(bisect_left(LEVELS_S, delay_s) + 1, len(LEVELS_S))


async def send_back(
    context: BrokerContext, group: str, message: ReceivedMessage, delay_s: float, copy: int | None = None
) -> Late | None:
    """Returns when the broker has stored it: None, or where, if its disk or slaves are late with it; call again with
    its ``copy``, to wait for that. An original does not say so. Raises BrokerError, Unavailable (ambiguous),
    NoSuchTopic."""
    queue = message.queue
    topic = await context.routes.find(queue.topic)
    address = topic.master(queue.broker)
    if address is None:
        context.routes.refresh_soon(queue.topic)
        raise BrokerUnavailable("this queue's broker has no master now", queue=queue)
    header = SendBackHeader(
        offset=message.record.physical_offset,
        group=group,
        delay_level=delay_level(delay_s),
        origin_msg_id=message.message_id,
        origin_topic=message.topic,
        broker=queue.broker,
        copy=copy,
    )
    command = request(RequestCode.CONSUMER_SEND_MSG_BACK, header.to_fields())
    # Answered as a send is: when disk and slaves have it.
    response = require_success(
        await context.remoting.ask(address, command, context.settings.send_timeout_s), queue=queue
    )
    late = SendBackResponse.of(response)
    return None if late.copy is None else Late(late.copy, response.remark, late.disk_late is True)
