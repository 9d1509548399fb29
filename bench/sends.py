"""Sends to a broker, where a client of ours would add its own time."""

from __future__ import annotations

import asyncio
import statistics
import time

from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.headers import SendHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.machine import this_machine

ANSWER_S = 30.0


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


async def send_over_connections(
    address: str, topic: str, body: bytes, connections: int, seconds: float
) -> dict[str, str]:
    """Send over so many connections, one message in flight on each; what a client's process would answer."""
    outside, latencies = this_machine(), list[float]()
    clients = [RemotingClient(outside, RemotingSettings()) for _ in range(connections)]

    async def one_by_one(client: RemotingClient) -> None:
        while (began := time.perf_counter()) < end:
            answer = await client.ask(address, send_request(body, topic), ANSWER_S)
            if answer.code:
                raise RuntimeError(f"the broker refused a message: {answer.code} {answer.remark}")
            latencies.append(time.perf_counter() - began)

    try:
        started = time.perf_counter()
        end = started + seconds
        await asyncio.gather(*map(one_by_one, clients))
        took = time.perf_counter() - started
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    p99 = sorted(latencies)[int(0.99 * len(latencies))]
    return {
        "count": str(len(latencies)),
        "seconds": str(took),
        "p50": str(statistics.median(latencies) * 1e3),
        "p99": str(p99 * 1e3),
    }
