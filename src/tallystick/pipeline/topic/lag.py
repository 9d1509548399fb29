"""How far a streaming query is behind its topics: what is not read, and how old that is.

The message that is read next says when it was stored, and about how large one is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from tallystick.errors import BrokerError, NoSuchMessage, RemoteProtocolError, Unavailable
from tallystick.pipeline.lag import Lag, age_s, mean, most_behind
from tallystick.pipeline.topic.follow import TopicFollower
from tallystick.pipeline.topic.plan import QueueRange
from tallystick.runtime.tasks import together


class _Next(NamedTuple):
    """A message that is read next."""

    size: int
    time_ms: int


async def lag_of(follower: TopicFollower, ranges: Sequence[QueueRange]) -> Lag:
    """Returns what some ranges have, none of which is empty."""
    if not ranges:
        return Lag()
    counts = {number: range_.count for number, range_ in enumerate(ranges)}
    samples = most_behind(counts)
    messages = await together(_next_message(follower, ranges[number]) for number in samples)
    following = {number: each for number, each in zip(samples, messages, strict=True) if each is not None}
    usual = mean(each.size for each in following.values())
    size = sum(count * (following[number].size if number in following else usual) for number, count in counts.items())
    age = age_s((each.time_ms for each in following.values()), follower.clock.wall_ms())
    return Lag(sum(counts.values()), size, age)


async def _next_message(follower: TopicFollower, range_: QueueRange) -> _Next | None:
    """Returns None if it cannot be read, which whoever reads it will hear of."""
    with contextlib.suppress(BrokerError, NoSuchMessage, RemoteProtocolError, Unavailable):
        pulled = await follower.client.pull(range_.queue, range_.first, 1)
        return _Next(pulled.size // len(pulled.run), int(pulled.column("store_timestamps")[0]))
    return None
