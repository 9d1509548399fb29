"""Ranges of queues from their brokers, in order, with a few pulls under way.

A broker decides how much a pull gives: the original 32 messages or 256 KiB at most, and a quarter of that from the
disk. So a range is pulled in windows of about as much, several at once; what a window lacks is pulled after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence

from tallystick.errors import NoSuchMessage, NoSuchTopic
from tallystick.pipeline.notes import note
from tallystick.pipeline.topic.brokers import Pulled, TopicClient
from tallystick.pipeline.topic.plan import QueueRange
from tallystick.pipeline.topic.schema import FORMAT

AT_ONCE = 4  # windows
FIRST_WINDOW = 32  # messages
LARGEST_WINDOW = 1024


class Pace:
    """How many messages to ask for: twice as many after a response that had all, as many as came after another."""

    def __init__(self) -> None:
        self.count = FIRST_WINDOW

    def responded(self, requested_count: int, message_count: int) -> None:
        if message_count < requested_count:
            self.count = message_count
        elif requested_count >= self.count:
            self.count = min(2 * requested_count, LARGEST_WINDOW)


async def fetch_runs(
    client: TopicClient, ranges: Sequence[QueueRange], *, fail_on_data_loss: bool = True
) -> AsyncGenerator[Pulled, None]:
    """Each message once, in the order of the ranges; what is not there is left out unless ``fail_on_data_loss``. Raises
    as ``TopicClient.pull``."""
    pace = Pace()
    windows = _windows(ranges, pace)
    under_way: deque[asyncio.Task[list[Pulled]]] = deque()
    try:
        while True:
            while len(under_way) < AT_ONCE and (window := next(windows, None)) is not None:
                under_way.append(asyncio.create_task(_pull(client, window, pace, fail_on_data_loss=fail_on_data_loss)))
            if not under_way:
                return
            for pulled in await under_way.popleft():
                yield pulled
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def _windows(ranges: Sequence[QueueRange], pace: Pace) -> Iterator[QueueRange]:
    """The ranges in pieces of the pace at the time when each is taken."""
    for range_ in ranges:
        first = range_.first
        while first < range_.end:
            end = min(first + pace.count, range_.end)
            yield QueueRange(range_.queue, first, end)
            first = end


async def _pull(client: TopicClient, window: QueueRange, pace: Pace, *, fail_on_data_loss: bool) -> list[Pulled]:
    pulls: list[Pulled] = []
    first, stop = window.first, window.end
    while first < window.end:
        try:
            pulled = await client.pull(window.queue, first, stop - first)
        except (NoSuchMessage, NoSuchTopic) as error:
            if fail_on_data_loss:
                raise
            if isinstance(error, NoSuchMessage) and error.offset is not None and first < error.offset < stop:
                stop = error.offset  # what is before the one that is missing is there
                continue
            note(FORMAT, f"messages are left out: {error}")
            first, stop = _behind(error, first, window.end), window.end
            continue
        if first == window.first:
            pace.responded(window.count, len(pulled.run))
        pulls.append(pulled)
        first += len(pulled.run)
        stop = stop if first < stop else window.end
    return pulls


def _behind(error: NoSuchMessage | NoSuchTopic, offset: int, end: int) -> int:
    """Returns where reading goes on behind an offset that has no message: ``end`` if nobody knows."""
    places = error.fields.get("first"), error.fields.get("next")
    return min((place for place in places if place is not None and offset < place < end), default=end)
