"""The writer process: appends rows to ledgers, and keeps a synced log of its own of what was acknowledged."""

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
LEDGER_ROWS = 100_000  # a new ledger after so many rows


async def write(uri: str, first_row: int, rows: int, rate: float, log: AckLog, leash: Leash) -> None:
    """Append rows ``first_row`` … ``rows`` - 1 at ``rate`` rows a second at most, as far as the leash allows."""
    table = load(rows)
    started, row = time.monotonic(), first_row
    batches = payloads(table, first_row, batch_rows=max(1, int(rate / BATCHES_PER_S)))
    async with tallystick.connect(uri) as client:
        while row < rows:
            writer = await client.create_ledger(custom_metadata={"application": b"flights"})
            log.write("part", writer.id)
            stop = min(rows, row + LEDGER_ROWS)
            while row < stop:
                await leash.reach(row)
                batch = next(batches)
                ids = await writer.append_batch(batch)
                log.write("acked", writer.id, ids[0], row, len(ids), time.time())
                row += len(ids)
                await asyncio.sleep(max(0.0, started + (row - first_row) / rate - time.monotonic()))
            await writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--first-row", type=int, default=0)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--log", required=True)
    options = parser.parse_args()
    with AckLog(options.log) as log:
        asyncio.run(write(options.uri, options.first_row, options.rows, options.rate, log, Leash(sys.stdin.readline)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
