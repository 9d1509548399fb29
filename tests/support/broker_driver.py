"""Our producers and consumers in a process of their own, driven by the same lines as the original's (``lines.py``).

Usage: ``python broker_driver.py``. Each request names its name server.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvloop

import tallystick
from tallystick import Message, ReceivedMessage, SendResult

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.content import payload
from support.lines import Answer, Arguments, Verbs, serve
from support.messages import message, received

BATCH, PUSH_BATCH = 20, 100
PAYLOADS = 64
QUIET_S = 3.0  # a message that was given back comes after a second where brokers have delays
SETTINGS = tallystick.BrokerClientSettings(route_refresh_s=1.0, send_timeout_s=15.0, max_message_bytes=8 << 20)


class BrokerDriver:
    """One client a name server, made when first asked for."""

    def __init__(self) -> None:
        self._clients: dict[str, tallystick.RocketMQ] = {}
        self._consumers: dict[str, list[asyncio.Task[None]]] = {}  # that read along; these by name server too
        self._pushed, self._expected, self._all_came = Counter[str](), Counter[str](), asyncio.Event()

    async def _client(self, given: Arguments) -> tallystick.RocketMQ:
        address = given["ns"]
        if address not in self._clients:
            self._clients[address] = await tallystick.topics(address, settings=SETTINGS)
        return self._clients[address]

    async def send(self, given: Arguments) -> Answer:
        """Messages first to first + count - 1, one after another, by futures, without answers, or in batches."""
        producer = (await self._client(given)).producer("interop_producer")
        topic, seed, size, first = given["topic"], int(given["seed"]), int(given["size"]), int(given["first"])
        wait = given.get("wait", "yes") == "yes"
        messages = [message(topic, seed, first + i, size, wait=wait) for i in range(int(given["count"]))]
        results: Sequence[SendResult]
        match given.get("how", "sync"):
            case "sync":
                results = [await self._one(producer, each) for each in messages]
            case "async":
                results = await asyncio.gather(*(self._one(producer, each) for each in messages))
            case "batch":
                batches = [messages[at : at + BATCH] for at in range(0, len(messages), BATCH)]
                results = [await producer.send_batch(topic, batch) for batch in batches]
            case "oneway":
                for each in messages:
                    await producer.send_one_way(
                        topic, each.body, tags=each.tags, keys=each.keys, properties=each.properties
                    )
                results = []
            case other:
                raise ValueError(f"no such way to send: {other}")
        answer: Answer = dict(Counter(result.status.name for result in results))
        return {**answer, "id": results[0].offset_id, "key": results[0].message_id} if results else answer

    async def _one(self, producer: tallystick.Producer, each: Message) -> SendResult:
        return await producer.send(
            each.topic,
            each.body,
            tags=each.tags,
            keys=each.keys,
            properties=each.properties,
            wait_stored=each.wait_stored,
        )

    async def pull(self, given: Arguments) -> Answer:
        """All of a topic: from each queue's first offset to its last."""
        client = await self._client(given)
        queues = (await client.topic(given["topic"])).readable
        limits = {queue: await client.queue_limits(queue) for queue in queues}
        left = {queue: end for queue, (first, end) in limits.items() if end > max(first, int(given["from"]))}
        found = []
        async with client.consumer(
            f"interop_puller_{time.monotonic_ns()}", given["topic"], start="first", queues=list(left)
        ) as consumer:
            async for each in consumer:
                found.append(each)
                if each.offset + 1 >= left.get(each.queue, 0):
                    left.pop(each.queue, None)
                if not left:
                    break
        return received(found)

    async def poll(self, given: Arguments) -> Answer:
        """What a member of a group gets, which commits it."""
        client = await self._client(given)
        found: list[ReceivedMessage] = []
        consumer = client.consumer(given["group"], given["topic"], tags=given.get("tags", "*"), start="first")
        async with consumer:
            try:
                async with asyncio.timeout(float(given["seconds"])):
                    async for each in consumer:
                        found.append(each)
                        consumer.ack(each)
                        if len(found) == int(given["count"]):
                            break
            except TimeoutError:
                pass
            await consumer.commit()
        return received(found)

    async def give_back(self, given: Arguments) -> Answer:
        """Give each message back once. What comes again, and how many in all until nothing comes."""
        client = await self._client(given)
        again: list[ReceivedMessage] = []
        first, count = 0, int(given["count"])
        async with client.consumer(given["group"], given["topic"], start="first") as consumer:
            with contextlib.suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(float(given["seconds"]) if len(again) < count else QUIET_S):
                        each = await anext(consumer)
                    if each.reconsume_times == 0:
                        first += 1
                        consumer.nack(each, delay_s=0)
                    else:
                        assert each.topic == given["topic"] and each.queue.topic == f"%RETRY%{given['group']}"
                        again.append(each)
                        consumer.ack(each)
            await consumer.commit()
            lag = (await consumer.lag()).total
        return {**received(again), "first": first, "lag": lag}

    async def load_sends(self, given: Arguments) -> Answer:
        """Send for some seconds, ``window`` without answer, one by one or in batches of ``batch``."""
        producer = (await self._client(given)).producer("interop_producer")
        topic, size, batch = given["topic"], int(given["size"]), int(given.get("batch", "1"))
        bodies = [payload(0, number, size) for number in range(PAYLOADS)]
        members = [bodies[number % PAYLOADS] for number in range(batch)]
        latencies: list[float] = []
        started = time.perf_counter()
        end, most = started + float(given["seconds"]), int(given.get("most", 100_000_000))
        count = 0

        async def batches() -> None:
            nonlocal count
            while time.perf_counter() < end and count < most:
                sent = time.perf_counter()
                count += batch
                _check(await producer.send_batch(topic, members))
                latencies.append(time.perf_counter() - sent)

        async def one_by_one(window: int) -> None:
            # The oldest quarter of the window stands or falls with its last future: answers of a queue come in order.
            nonlocal count
            share = max(1, window // 4)
            flying: list[tuple[float, list[asyncio.Future[SendResult]]]] = []
            while time.perf_counter() < end and count < most:
                if len(flying) * share >= window:
                    await _settle(flying, latencies)
                sent = time.perf_counter()
                run = [producer.send_nowait(topic, bodies[(count + i) % PAYLOADS]) for i in range(share)]
                flying.append((sent, run))
                count += share
            while flying:
                await _settle(flying, latencies)

        window = int(given["window"])
        await (asyncio.gather(*(batches() for _ in range(window))) if batch > 1 else one_by_one(window))
        seconds = time.perf_counter() - started
        latencies.sort()
        return {
            "count": count,
            "seconds": seconds,
            "p50": latencies[len(latencies) // 2] * 1e3,
            "p99": latencies[int(len(latencies) * 0.99)] * 1e3,
        }

    async def load_pulls(self, given: Arguments) -> Answer:
        """Read a topic again and again for some seconds."""
        client = await self._client(given)
        queues = (await client.topic(given["topic"])).readable
        count = size = 0
        started = time.perf_counter()
        end = started + float(given["seconds"])
        total = sum([(await client.queue_limits(queue))[1] for queue in queues])
        while time.perf_counter() < end:
            left = total
            group = f"interop_puller_{time.monotonic_ns()}"
            async with client.consumer(group, given["topic"], start="first", alone=True) as consumer:
                async for each in consumer:
                    count, left, size = count + 1, left - 1, size + len(each.body)
                    if not left or (not count % 256 and time.perf_counter() >= end):
                        break
        return {"count": count, "bytes": size, "seconds": time.perf_counter() - started}

    async def join_push(self, given: Arguments) -> Answer:
        """Consumers, each a group of its own, that go on with a topic from its first message until they leave."""
        client = await self._client(given)

        async def consume(number: int) -> None:
            group = f"pushed_{time.monotonic_ns()}_{number}"
            async with client.consumer(group, given["topic"], start="first") as messages:
                async for _ in messages:
                    self._pushed[given["ns"]] += 1
                    if self._pushed[given["ns"]] == self._expected[given["ns"]]:
                        self._all_came.set()

        tasks = [asyncio.create_task(consume(number)) for number in range(int(given["consumers"]))]
        self._consumers[given["ns"]] = tasks
        return {}

    async def load_push(self, given: Arguments) -> Answer:
        """Send ``count`` messages in batches, and wait until each of those that joined has had them all."""
        namespace, consumers = given["ns"], len(self._consumers[given["ns"]])
        producer = (await self._client(given)).producer("interop_producer")
        batch, count = [payload(0, number, int(given["size"])) for number in range(PUSH_BATCH)], int(given["count"])
        self._expected[namespace] += count * consumers
        self._all_came.clear()
        started = time.perf_counter()
        async with asyncio.timeout(float(given["seconds"])):
            for _ in range(count // PUSH_BATCH):
                _check(await producer.send_batch(given["topic"], batch))
            await self._all_came.wait()
        return {"count": count * consumers, "seconds": time.perf_counter() - started}

    async def leave_push(self, given: Arguments) -> Answer:
        tasks = self._consumers.pop(given["ns"])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {}

    async def forget(self, given: Arguments) -> Answer:
        client = self._clients.pop(given["ns"], None)
        if client is not None:
            await client.close()
        return {}

    def verbs(self) -> Verbs:
        plain = (self.send, self.pull, self.poll, self.forget)
        return {
            **{verb.__name__: verb for verb in plain},
            "give-back": self.give_back,
            "load-sends": self.load_sends,
            "load-pulls": self.load_pulls,
            "join-push": self.join_push,
            "load-push": self.load_push,
            "leave-push": self.leave_push,
        }


def _check(result: SendResult) -> None:
    if result.status.name != "SEND_OK":
        raise RuntimeError(result.status.name)


async def _settle(flying: list[tuple[float, list[asyncio.Future[SendResult]]]], latencies: list[float]) -> None:
    sent, run = flying.pop(0)
    for future in run:
        _check(await future)
    latencies.append(time.perf_counter() - sent)


async def main() -> None:
    await serve(BrokerDriver().verbs())


if __name__ == "__main__":
    uvloop.run(main())
