"""A core of deliveries with queues and messages, for tests that call it."""

from __future__ import annotations

from tallystick.codec.records import encode_records, topic_field
from tallystick.rocketmq.client.delivery import DeliveryCore
from tallystick.rocketmq.client.pulling import PullPosition
from tallystick.rocketmq.client.received import ReceivedMessage
from tallystick.rocketmq.client.subscription import ALL_TAGS
from tallystick.rocketmq.client.unacked import QueueCore, UnackedBounds
from tallystick.rocketmq.wire.headers import PullResponse
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MessageQueue, ResponseCode

HOST = encode_host("127.0.0.1", 1)
QUEUES = [MessageQueue("T", "b", number) for number in range(2)]
DELAYS_S = (1.0, 5.0, 10.0)


def found(queue: MessageQueue, first: int, end: int) -> Command:
    header = PullResponse(suggest_which_broker_id=0, next_begin_offset=end, max_offset=end, min_offset=0)
    rows = [(topic_field("T"), queue.queue_id, n, 0, 1, HOST, 0, [(0, b"%d" % n, b"")]) for n in range(first, end)]
    return request(11).response(0, None, header.to_fields(), encode_records(rows, 0, 1, HOST))


def moved(to: int) -> Command:
    header = PullResponse(suggest_which_broker_id=0, next_begin_offset=to, max_offset=to, min_offset=0)
    return request(11).response(ResponseCode.PULL_OFFSET_MOVED, None, header.to_fields())


def core(
    count: int = 1000, span: int = 2000, size: int = 1 << 20, *, auto_ack: bool = True, ordered: bool = False
) -> DeliveryCore:
    return DeliveryCore(UnackedBounds(count, span, size), DELAYS_S, auto_ack=auto_ack, ordered=ordered)


def assign(to: DeliveryCore, number: int = 0, *, messages: int = 0, gives_back: bool = True) -> QueueCore:
    queue = to.assigned(PullPosition(QUEUES[number], ALL_TAGS, 0), gives_back=gives_back)
    if messages:
        assert to.responded(queue.pull, found(queue.queue, 0, messages))
    return queue


def take(of: DeliveryCore, count: int) -> list[ReceivedMessage]:
    return [of.take() for _ in range(count)]


def offsets(of: DeliveryCore) -> list[int]:
    return [message.offset for _, message in of.ready]
