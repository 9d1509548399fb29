"""The sender process: sends rows to a topic in batches, and keeps a synced log of its own of what was acknowledged.

One batch is under way at a time, and batches go to the queues in turn: so the stored rows are all up to some row, and
each queue has its rows in order. It does not send again what has no answer, as that may be stored: whoever comes after
it looks into the queues.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import tallystick
from examples.flights.acks import AckLog
from examples.flights.data import load, payloads
from examples.flights.leash import Leash

BATCHES_PER_S = 20
LOST_BROKER = 3  # the exit code when a batch has no good answer
GROUP = "flights-sender"


async def send(name_server: str, topic: str, first_row: int, rows: int, rate: float, log: AckLog, leash: Leash) -> int:
    """Send rows ``first_row`` … ``rows`` - 1 at ``rate`` a second at most, and as the leash allows; the exit code."""
    table = load(rows)
    started, row = time.monotonic(), first_row
    async with tallystick.topics(name_server, settings=tallystick.BrokerClientSettings(send_retries=0)) as mq:
        queues, producer = (await mq.topic(topic)).writable, mq.producer(GROUP)
        for number, batch in enumerate(payloads(table, first_row, batch_rows=max(1, int(rate / BATCHES_PER_S)))):
            await leash.reach(row)
            try:
                result = await producer.send_batch(topic, batch, queue=queues[number % len(queues)])
            except tallystick.TallyError as error:
                print(error, file=sys.stderr)
                return LOST_BROKER
            if result.status is not tallystick.SendStatus.SEND_OK:  # it is at the master alone, which may die
                print(result.status.name, file=sys.stderr)
                return LOST_BROKER
            log.write("acked", result.queue.queue_id, result.queue_offset, row, len(batch), time.time())
            row += len(batch)
            await asyncio.sleep(max(0.0, started + (row - first_row) / rate - time.monotonic()))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--first-row", type=int, default=0)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--log", required=True)
    options = parser.parse_args()
    first_row, rows, rate, leash = options.first_row, options.rows, options.rate, Leash(sys.stdin.readline)
    with AckLog(options.log) as log:
        return asyncio.run(send(options.name_server, options.topic, first_row, rows, rate, log, leash))


if __name__ == "__main__":
    sys.exit(main())
