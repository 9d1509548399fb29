"""How large messages are, asked of some of them.

Which ones hangs on the ranges alone, and a record never changes: so does what is cut by the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import NoSuchMessage
from tallystick.pipeline.topic.brokers import TopicClient
from tallystick.pipeline.topic.plan import QueueExtent, QueueRange
from tallystick.runtime.tasks import together

SAMPLES = 32  # messages of all ranges
MOST_OF_A_RANGE = 8


def sample(ranges: Sequence[QueueRange]) -> list[tuple[int, int]]:
    """Returns which messages are asked for, by number of the range and offset: of the longest ranges some each."""
    longest = sorted(range(len(ranges)), key=lambda number: (-ranges[number].count, number))[:SAMPLES]
    each = min(SAMPLES // max(len(longest), 1), MOST_OF_A_RANGE)
    return [
        (number, offset)
        for number in longest
        for offset in sorted({ranges[number].first + ranges[number].count * step // each for step in range(each)})
    ]


async def extents_of(
    client: TopicClient, ranges: Sequence[QueueRange], *, fail_on_data_loss: bool = True
) -> list[QueueExtent]:
    """Returns the ranges with the sizes of their messages; a range without a sample has the mean of all.

    Raises as ``TopicClient.pull``; a message that is gone has no size if ``fail_on_data_loss`` is False.
    """
    samples = sample(ranges)

    async def size(number: int, offset: int) -> int | None:
        try:
            return (await client.pull(ranges[number].queue, offset, 1)).size
        except NoSuchMessage:
            if fail_on_data_loss:
                raise
            return None

    sizes: dict[int, list[int]] = {}
    for (number, _), record_bytes in zip(samples, await together((size(*one) for one in samples), 64), strict=True):
        if record_bytes is not None:
            sizes.setdefault(number, []).append(record_bytes)
    mean = _mean([record_bytes for some in sizes.values() for record_bytes in some])
    return [
        QueueExtent(range_, _mean(sizes[number]) if number in sizes else mean) for number, range_ in enumerate(ranges)
    ]


def _mean(sizes: Sequence[int]) -> int:
    return -(-sum(sizes) // len(sizes)) if sizes else 1
