"""The request of a send to a broker, where a client of ours would add its own time."""

from __future__ import annotations

from tallystick.rocketmq.wire.headers import SendHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode


def send_request(body: bytes, topic: str) -> Command:
    """Return the request of a client, to queue 0."""
    header = SendHeader(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="WAIT\x01true\x02",
    )
    return request(RequestCode.SEND_MESSAGE_V2, header.to_letters(), body)
