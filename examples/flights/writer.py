"""The writer process: owns the stream and publishes rows, and keeps a synced log of its own of what was acknowledged.

Each row is a message with its carrier as key, its scheduled time as event time, and its number. A writer that comes
after another one waits until that one's lease ends, takes the stream over, and begins with the first row that the other
one's log does not promise. The rows behind it are in doubt: some are stored. With their numbers they can be published
again, and are stored once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import tallystick
from examples.flights.acks import AckLog, AckLogContent, read_log
from examples.flights.data import Flight, flights, load
from examples.flights.leash import Leash
from tallystick.errors import StreamOwned

STREAM, PRODUCER = "demo/nyc/persistent/flights", "flights"
BATCHES_PER_S = 20
LEASE_S = 4.0  # a writer that is silent for so long owns the stream no more
WAIT_S = 60.0


async def own(client: tallystick.BookKeeper, log: AckLog) -> tallystick.Stream:
    """Open the stream, when nobody alive owns it."""
    try:
        return await client.open_stream(STREAM)
    except StreamOwned as error:
        since = datetime.fromtimestamp((error.since_ms or 0) / 1000, UTC)
        log.step(f"{error.owner} owns the stream since {since:%H:%M:%S} UTC")
    return await client.open_stream(STREAM, wait_s=WAIT_S)


async def stored_after(client: tallystick.BookKeeper, promised: AckLogContent) -> dict[int, tallystick.Position]:
    """Where the rows are that were stored and never promised: the end of the stream."""
    last = promised.runs[-1] if promised.runs else None
    start = None if last is None else tallystick.Position(last.part, last.position + last.count - 1)
    async with client.read_stream(STREAM) as reader:
        found = {message.sequence: message.position async for message in reader.read(start=start)}
    return {row: position for row, position in found.items() if row is not None and row >= promised.rows}


def explaining(log: AckLog) -> Callable[[tallystick.Event], None]:
    """Events become steps. Who recovers a ledger of the stream has its lease: that comes first."""
    has_lease = False

    def explain(event: tallystick.Event) -> None:
        nonlocal has_lease
        if event.kind == "recovery began" and not has_lease:
            has_lease = True
            log.step(f"the dead owner's lease of {LEASE_S:.0f} s has ended, and is taken")
        log.step(str(event))

    return explain


def runs(row: int, positions: Sequence[tallystick.Position]) -> Iterator[tuple[int, int, int, int]]:
    """Rows from ``row`` on at these positions, as ``acked`` lines have them: ledger, first entry, first row, count."""
    first = 0
    for index in range(1, len(positions) + 1):
        ledger, entry, _ = positions[first]
        if index == len(positions) or positions[index][:2] != (ledger, entry + index - first):
            yield ledger, entry, row + first, index - first
            first = index


class Publisher:
    """Publishes rows to a stream that it owns. ``stored``: the rows in doubt that are there."""

    def __init__(self, stream: tallystick.Stream, log: AckLog, stored: Mapping[int, tallystick.Position]) -> None:
        self._stream, self._log, self._stored = stream, log, stored
        self._end_before = stream.last_confirmed

    async def publish(self, batches: Iterable[list[Flight]], first_row: int, rate: float, leash: Leash) -> None:
        """Publish at ``rate`` rows a second at most. The next batch is sent before the one on its way is promised: so
        there is always something in doubt, as with any writer that does not wait for each answer."""
        started, row = time.monotonic(), first_row
        sent: tuple[int, list[asyncio.Future[tallystick.Position]]] | None = None
        for batch in batches:
            await leash.reach(row)
            futures = [self._append(row + index, flight) for index, flight in enumerate(batch)]
            if sent is not None:
                await self._promise(*sent)
            sent, row = (row, futures), row + len(batch)
            await asyncio.sleep(max(0.0, started + (row - first_row) / rate - time.monotonic()))
        if sent is not None:
            await self._promise(*sent)

    def _append(self, row: int, flight: Flight) -> asyncio.Future[tallystick.Position]:
        return self._stream.append_nowait(
            flight.data, key=flight.carrier, event_time=flight.scheduled_ms, producer=PRODUCER, sequence=row
        )

    async def _promise(self, row: int, futures: Sequence[asyncio.Future[tallystick.Position]]) -> None:
        positions = await asyncio.gather(*futures)
        repeats = [position for index, position in enumerate(positions) if row + index in self._stored]
        if repeats:
            twice = sum(position > self._end_before for position in repeats)
            self._log.step(f"{len(repeats):,} rows were repeated with their numbers: {twice:,} are stored twice")
        # Where a repeat is the stream tells only as long as it remembers, and ``-1:-1`` then.
        places = [self._stored.get(row + index, position) for index, position in enumerate(positions)]
        seconds = time.time()
        for run in runs(row, places):
            self._log.write("acked", *run, seconds)


async def write(uri: str, name: str, before: Path | None, rows: int, rate: float, log: AckLog, leash: Leash) -> None:
    """Own the stream, and publish what the log ``before`` does not promise, as far as the leash allows."""
    table, events = load(rows), tallystick.Events(explaining(log))
    streams = tallystick.StreamClientSettings(lease_s=LEASE_S, owner=name)
    async with tallystick.connect(uri, events=events, streams=streams) as client, await own(client, log) as stream:
        promised, stored = AckLogContent(), {}
        if before is not None:
            promised = read_log(before)
            stored = await stored_after(client, promised)
            resumed_at = promised.rows + len(stored)
            log.step(f"acknowledged up to row {promised.rows - 1:,}, stored up to row {resumed_at - 1:,}")
            log.write("resumed", resumed_at)
            log.step(
                "the first append reads the numbers: those saved in a ledger of the cursor pulsar.dedup, and later ones"
            )
        batches = flights(table, promised.rows, batch_rows=max(1, int(rate / BATCHES_PER_S)))
        await Publisher(stream, log, stored).publish(batches, promised.rows, rate, leash)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--before", type=Path, help="the log of the writer before this one")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--log", required=True)
    told = parser.parse_args()
    with AckLog(told.log) as log:
        asyncio.run(write(told.uri, told.name, told.before, told.rows, told.rate, log, Leash(sys.stdin.readline)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
