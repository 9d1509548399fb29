"""The application of a sink that sends to simulated brokers, each message once, as tasks of ours do: batch after batch,
a part of it in each task, whose attempts die, fail, run twice, and go on when their batch is over.

The rows of a batch are the same in all attempts. The judge says what an attempt may hear that is no failure of
brokers.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import FIRST_COMPLETED as FIRST
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tallystick.codec.checksum import crc32c
from tallystick.codec.records import Content
from tallystick.errors import CheckpointLost, NonDeterministicReplay, TallyError
from tallystick.rocketmq.client.client import RocketMQ
from tallystick.rocketmq.client.sinking import SinkPlace, SinkSender, SinkStart
from tallystick.rocketmq.wire.record import UNIQ_KEY, encode_properties
from tallystick.rocketmq.wire.sink_identity import SINK, SinkIdentity, brokers_part
from tallystick.sim.brokers_hosts import BrokerClientHost
from tallystick.sim.brokers_plan import SinkPlan
from tallystick.sim.brokers_sinks_judge import SinksJudge

AGAIN_S = 0.5
LONGEST_S = 4.0  # that an attempt which is to die lives
MOST_ROWS = 8  # of one send
QUERY = "q"


@dataclass(frozen=True)
class _Attempt:
    """A process that sends a part of a batch. Its ``outcome`` has True when all of it is stored."""

    host: BrokerClientHost
    work: asyncio.Task[None]
    outcome: list[bool]


class SimSink:
    """One application. ``run`` it; it ends with the batch that it sends when it ``concludes``, which must be stored."""

    def __init__(
        self, number: int, plan: SinkPlan, judge: SinksJudge, rng: random.Random,
        new_host: Callable[[str], BrokerClientHost],
    ) -> None:  # fmt: skip
        self.name, self.plan, self._judge, self._random, self._new_host = f"s{number}", plan, judge, rng, new_host
        self._attempts: list[_Attempt] = []  # of all batches
        self.concludes = asyncio.Event()

    async def run(self) -> None:
        plan, rng = self.plan, self._random
        await asyncio.sleep(plan.begins)
        for batch in range(plan.batches):
            await self._send_batch(batch, rng.randint(1, plan.partitions))
            await asyncio.sleep(rng.random() * plan.pause_s)
        await self.concludes.wait()
        await self._send_batch(plan.batches, plan.partitions)
        self.end()

    def end(self) -> None:
        """Kill what goes on."""
        for attempt in self._attempts:
            attempt.host.kill()

    async def _send_batch(self, batch: int, partitions: int) -> None:
        self._judge.began(self.name, batch)
        places = [
            SinkPlace(self.plan.topic, self.name, QUERY, batch, partitions, partition)
            for partition in range(partitions)
        ]
        await asyncio.gather(*[self._send_part(place, self._bodies(place)) for place in places])

    def _bodies(self, place: SinkPlace) -> list[bytes]:
        """The rows of a part; their names say where they belong."""
        rng, name = self._random, f"{self.name}-{place.batch}-{place.partition}"
        return [
            f"{name}:{sequence}:".encode() + rng.randbytes(rng.randint(0, self.plan.largest))
            for sequence in range(rng.randint(1, self.plan.rows))
        ]

    async def _send_part(self, place: SinkPlace, bodies: Sequence[bytes]) -> None:
        """Let attempts follow one another, until one has sent all."""
        self._judge.sending(bodies)
        rng = self._random
        while True:
            attempts = [self._begin(place, bodies) for _ in range(1 + (rng.random() < self.plan.twins))]
            dies = not self.concludes.is_set() and rng.random() < self.plan.deaths
            within_s = rng.random() * LONGEST_S if dies else None
            await asyncio.wait([attempt.work for attempt in attempts], timeout=within_s, return_when=FIRST)
            for attempt in attempts:
                if attempt.work.done():
                    attempt.work.result()
            if any(True in attempt.outcome for attempt in attempts):
                return  # the others may go on
            if dies and rng.random() < 0.7:  # else nobody knows that it lives
                attempts[0].host.kill()
            await asyncio.sleep(rng.random() * AGAIN_S)

    def _begin(self, place: SinkPlace, bodies: Sequence[bytes]) -> _Attempt:
        host, outcome, rng = self._new_host(self.name), list[bool](), random.Random(self._random.getrandbits(64))
        work = host.run(lambda client: self._send(client, place, bodies, outcome, rng))
        self._attempts.append(_Attempt(host, work, outcome))
        return self._attempts[-1]

    async def _send(
        self, client: RocketMQ, place: SinkPlace, bodies: Sequence[bytes], outcome: list[bool], rng: random.Random
    ) -> None:
        sender, judge = SinkSender(client), self._judge
        try:
            queues = await sender.queues(place.topic)
            start = await sender.begin(place, queues)
            if start.newest > place.batch:
                judge.heard_of_a_later_batch(place)
                return
            contents, at = _contents(place, start, bodies), max(start.stored, 0)
            while at < len(contents):
                count, began = rng.randint(1, MOST_ROWS), asyncio.get_running_loop().time()
                await sender.send_once(place, start.queue, contents[at : at + count])
                judge.acknowledged(place, start.queue, bodies[at : at + count], began)
                at += count
            outcome.append(True)
        except CheckpointLost:
            judge.heard_of_a_later_batch(place)
        except NonDeterministicReplay as error:
            judge.fail("B11", f"the same rows are taken for others: {error}")
        except TallyError:
            outcome.append(False)


def _contents(place: SinkPlace, start: SinkStart, bodies: Sequence[bytes]) -> list[Content]:
    """Returns a part as messages with their identities."""
    contents, crc, brokers = list[Content](), 0, brokers_part(start.brokers)
    for sequence, body in enumerate(bodies):
        crc = crc32c(body, crc)
        identity = SinkIdentity(
            place.application, place.query, place.batch, place.partitions, place.partition, sequence, crc, brokers
        )
        key = f"{place.application}{place.batch:X}-{place.partition:X}-{sequence:X}"
        contents.append((0, body, encode_properties({UNIQ_KEY: key, SINK: identity.text})))
    return contents
