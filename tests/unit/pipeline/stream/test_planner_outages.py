"""A query that follows streams while its metadata, or bookies, are away."""

from __future__ import annotations

from typing import Any

import pytest

from support.following_queries import entries, values
from support.listed_streams import NAME, ListedStream
from support.small_cluster import SmallCluster
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import MetadataUnavailable, Unavailable
from tallystick.pipeline import listing
from tallystick.pipeline.stream import follow


async def test_metadata_that_are_away_for_a_while_end_no_query_of_a_pattern(
    owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    await owner.create(entries(0))
    following = query(subscribePattern="tenant/.*")
    assert await following.until_idle() == values(0)

    async def away(*_: object) -> None:
        raise MetadataUnavailable("it is away")

    monkeypatch.setattr(MemoryStore, "children", away)
    assert not await following.trigger()
    monkeypatch.setattr(listing, "PATIENCE_S", -1.0)
    with pytest.raises(MetadataUnavailable):
        await following.trigger()


async def test_bookies_that_are_down_when_a_stream_is_new(
    cluster: SmallCluster, owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    following = query(subscribePattern="tenant/ns/.*")
    await following.trigger()
    await owner.create()
    await cluster.down("b0", "b1")
    assert await following.trigger() and following.at == {NAME: Position(owner.info.ledgers[0].ledger, 0)}
    assert not await following.trigger()


async def test_bookies_that_are_down_for_a_while_end_no_query(
    cluster: SmallCluster, owner: ListedStream, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.create()
    await owner.append(*entries(0))
    await owner.tell_lac()
    following = query()
    assert await following.until_idle() == values(0)
    await cluster.down("b0", "b1")
    assert not await following.trigger()
    monkeypatch.setattr(follow, "PATIENCE_S", -1.0)
    with pytest.raises(Unavailable):
        await following.trigger()
    following.restart()
    with pytest.raises(Unavailable):
        await following.decisions.freeze(following.follower)
    await cluster.up("b0", "b1")
    monkeypatch.undo()
    following.restart()
    await owner.append(*entries(1))
    await owner.roll()
    assert await following.until_idle() == values(0, 1)


async def test_the_patience_with_bookies_begins_when_they_are_down_and_not_with_the_query(
    cluster: SmallCluster, owner: ListedStream, query: Any
) -> None:
    await owner.create(entries(0))
    following = query()
    await following.until_idle()
    following.follower._followed[NAME].seen_at -= 2 * follow.PATIENCE_S  # it runs for long
    assert not await following.trigger()
    await cluster.down("b0", "b1")
    assert not await following.trigger()
