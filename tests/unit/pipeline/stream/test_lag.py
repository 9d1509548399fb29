"""How far behind its streams a streaming query says that it is."""

from __future__ import annotations

from typing import Any

import pytest

from support.following_queries import entries
from support.listed_streams import ListedStream, pulsar_entry
from tallystick.pipeline.lag import Lag


async def test_the_lag_is_what_a_batch_leaves(owner: ListedStream, query: Any) -> None:
    await owner.create(entries(0, 1), entries(2, 3))
    await owner.append(*entries(4), pulsar_entry(b"5", b"6", time_ms=3))
    await owner.tell_lac()
    following = query(maxOffsetsPerTrigger="1")
    size = len(entries(0)[0])
    for left in (5, 4, 3, 2):
        assert await following.trigger()
        lag = await following.decisions.lag(following.follower)
        assert lag.rows == left and size * left <= lag.bytes <= size * (left + 1)
        now_s = following.follower.bk.context.clock.wall_ms() / 1000
        assert lag.seconds == pytest.approx(now_s - (1000 + 6 - left), abs=5)
    assert await following.trigger()
    lag = await following.decisions.lag(following.follower)
    assert lag.rows == 2  # a batch that is read next tells how many messages an entry has
    await following.until_idle()
    assert await following.decisions.lag(following.follower) == Lag()


async def test_raw_entries_do_not_say_how_old_they_are(owner: ListedStream, query: Any) -> None:
    await owner.create([b"no message", b"x" * 10])
    following = query(entryFormat="raw", maxOffsetsPerTrigger="1")
    assert await following.trigger()
    assert await following.decisions.lag(following.follower) == Lag(1, 10, None)


async def test_an_entry_that_cannot_be_read_says_nothing_of_the_lag(owner: ListedStream, query: Any) -> None:
    await owner.create([*entries(0), b"no message"])
    following = query(maxOffsetsPerTrigger="1")
    assert await following.trigger()
    lag = await following.decisions.lag(following.follower)
    assert (lag.rows, lag.seconds) == (1, None)
