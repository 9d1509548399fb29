"""Sends to a broker, where a client of ours would add its own time."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

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


@asynccontextmanager
async def connections(address: str, count: int) -> AsyncIterator[list[RemotingClient]]:
    """So many clients, each with a connection of its own on which something was answered."""
    outside = this_machine()
    clients = [RemotingClient(outside, RemotingSettings()) for _ in range(count)]
    try:
        await asyncio.gather(
            *(client.ask(address, request(RequestCode.GET_BROKER_RUNTIME_INFO, {}), ANSWER_S) for client in clients)
        )
        yield clients
    finally:
        await asyncio.gather(*(client.close() for client in clients))


async def send_over(
    clients: Sequence[RemotingClient], address: str, topic: str, body: bytes, seconds: float
) -> dict[str, str]:
    """Keep one message in flight on each connection; what a client's process would answer."""
    latencies = list[float]()

    async def one_by_one(client: RemotingClient) -> None:
        while (began := time.perf_counter()) < end:
            answer = await client.ask(address, send_request(body, topic), ANSWER_S)
            if answer.code:
                raise RuntimeError(f"the broker refused a message: {answer.code} {answer.remark}")
            latencies.append(time.perf_counter() - began)

    started = time.perf_counter()
    end = started + seconds
    await asyncio.gather(*map(one_by_one, clients))
    took = time.perf_counter() - started
    p99 = sorted(latencies)[int(0.99 * len(latencies))]
    return {
        "count": str(len(latencies)),
        "seconds": str(took),
        "p50": str(statistics.median(latencies) * 1e3),
        "p99": str(p99 * 1e3),
    }
