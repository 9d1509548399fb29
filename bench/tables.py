"""A broker's tables under strangers: how long its loop stands still, and what that does to those who send.

    python bench/tables.py [--quick] [--json FILE] [--docs FILE]

One broker in this process, on this machine's disk. While a client sends one message after the other, another one sends
a heartbeat of many unknown groups, makes topics where there are many, or commits offsets where there are hundreds of
thousands. The longest turn of the loop is by how much a timer of a millisecond came late at most; the client's own work
is in it. Whole seconds are also what a restart takes with such tables.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import command
from machine import describe
from report import grid
from sends import send_request

from tallystick.rocketmq.broker.broker import Broker, start_broker
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import CreateTopicHeader
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import ConsumerGroup, GroupConfig, Heartbeat, RequestCode, TopicConfig
from tallystick.runtime.machine import this_machine

MIB = 1024 * 1024
TOPIC = "Sent"
TICK_S = 0.001
QUEUES, GROUPS = 8, 32
ANSWER_S = 120.0


@dataclass(frozen=True)
class Round:
    """``work_ms``: until what the strangers asked for was answered."""

    load: str
    work_ms: float
    longest_turn_ms: float
    sends: int
    send_p50_ms: float
    send_max_ms: float
    restart_s: float


Load = Callable[[Broker, RemotingClient, str, int], Awaitable[None]]


async def many_groups(broker: Broker, client: RemotingClient, address: str, count: int) -> None:
    beat = Heartbeat("stranger", consumers=tuple(ConsumerGroup(f"Group{number:06d}") for number in range(count)))
    body = dialect.write(beat)
    await client.ask(address, request(RequestCode.HEART_BEAT, {}, body), ANSWER_S)


async def more_topics(broker: Broker, client: RemotingClient, address: str, count: int) -> None:
    topics = broker.tables.topics
    topics.put(*(TopicConfig(f"Topic{number:06d}", QUEUES, QUEUES) for number in range(count)))
    for number in range(10):
        header = CreateTopicHeader(
            topic=f"New{number}",
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        answer = await client.ask(address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields()), ANSWER_S)
        assert answer.code == 0, answer.remark


async def many_offsets(broker: Broker, client: RemotingClient, address: str, count: int) -> None:
    """Committed in the process, some at a time, as the network would bring them; two saves fall into it."""
    tables = broker.tables
    tables.groups.put(*(GroupConfig(f"Group{number:02d}") for number in range(GROUPS)))
    for topic in range(count // QUEUES // GROUPS):
        for group in range(GROUPS):
            for queue_id in range(QUEUES):
                tables.offsets.commit(f"Topic{topic:04d}", f"Group{group:02d}", queue_id, 10**9 + topic)
        await asyncio.sleep(0)
    for number in range(120):
        tables.offsets.commit("Topic0000", "Group00", 0, number)
        await asyncio.sleep(0.1)


LOADS: dict[str, tuple[Load, int]] = {
    "a heartbeat of 100 unknown groups": (many_groups, 100),
    "a heartbeat of 1,000 unknown groups": (many_groups, 1000),
    "10 topics among 5,000": (more_topics, 5000),
    "256,000 offsets": (many_offsets, 256_000),
}


class Watch:
    """Sends, and a timer, while something else happens."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client, self._address = client, address
        self.sends: list[float] = []
        self.longest = 0.0

    async def over(self, work: Awaitable[None]) -> float:
        """Seconds that the work took; some more are watched."""
        tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._send())]
        await asyncio.sleep(0.2)
        start = time.perf_counter()
        await work
        took = time.perf_counter() - start
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return took

    async def _tick(self) -> None:
        while True:
            due_at = time.perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.longest = max(self.longest, time.perf_counter() - due_at)

    async def _send(self) -> None:
        while True:
            start = time.perf_counter()
            message = send_request(b"body", TOPIC)
            answer = await self._client.ask(self._address, message, ANSWER_S)
            assert answer.code == 0, answer.remark
            self.sends.append(time.perf_counter() - start)


async def measure(load: str, folder: str) -> Round:
    work, count = LOADS[load]
    store = StoreSettings(commit_log_file_bytes=64 * MIB, consume_queue_file_units=3000, index=False)
    settings = BrokerSettings(folder, "b0", "c0", port=0, store=store)
    outside = this_machine()
    broker = await start_broker(settings, outside)
    gc.freeze()  # as a broker's own process does
    client = RemotingClient(outside, RemotingSettings())
    address = "{}:{}".format(*broker.address)
    watch = Watch(client, address)
    took = await watch.over(work(broker, client, address, count))
    await client.close()
    await broker.stop()
    start = time.perf_counter()
    again = await start_broker(settings, outside)
    restart_s = time.perf_counter() - start
    await again.stop()
    p50, worst = statistics.median(watch.sends) * 1000, max(watch.sends) * 1000
    return Round(load, took * 1000, watch.longest * 1000, len(watch.sends), p50, worst, restart_s)


def all_loads(quick: bool) -> command.Results:
    """Everything that the report needs."""
    rounds = []
    for load in LOADS:
        for _ in range(1 if quick else 3):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(asyncio.run(measure(load, folder)))
            print(rounds[-1], file=sys.stderr, flush=True)
    return {"machine": describe(Path(tempfile.gettempdir())), "rounds": rounds}


def markdown(results: command.Results) -> str:
    """Medians of the rounds."""
    rows = []
    for load in LOADS:
        rounds = [asdict(one) for one in results["rounds"] if one.load == load]
        names = ("work_ms", "longest_turn_ms", "send_p50_ms", "send_max_ms", "restart_s")
        work, turn, p50, worst, restart = (statistics.median(one[name] for one in rounds) for name in names)
        rows.append([load, f"{work:,.0f}", f"{turn:,.0f}", f"{p50:.1f}", f"{worst:,.0f}", f"{restart:.2f}"])
    titles = ["while", "took, ms", "longest turn, ms", "send p50, ms", "send max, ms", "restart, s"]
    return grid(titles, rows)


def main() -> int:
    return command.run(__doc__, "one round each", all_loads, markdown, place="tables")


if __name__ == "__main__":
    sys.exit(main())
