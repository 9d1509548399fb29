"""An application that is not needed any more leaves the list of its stream: its rows stay, and it commits no more."""

from __future__ import annotations

import pytest

from support.small_cluster import SmallCluster
from support.streams import LOSE, NAME, StoreFaults, ledgers, notes, of_list, once, payloads, read_list
from tallystick.bookkeeper.stream.splice.record import applications
from tallystick.errors import CheckpointLost, NotFound, StreamFenced
from unit.bookkeeper.stream.test_sink import committed, opened, part


async def test_a_forgotten_application_leaves_its_rows_and_nothing_else(cluster: SmallCluster) -> None:
    bk = cluster.client()
    for name in ("app", "other"):
        sink = await opened(bk, application=name)
        await committed(bk, sink, 0, [name.encode()])
    left = await part(bk, await opened(bk, application="app"), 1, [b"of no batch"])
    assert left is not None and left.ledger in await ledgers(cluster)
    record = await bk.forget_sink(NAME, "app")
    assert (record.query, record.batch) == ("q", 0)
    assert set(applications(await read_list(cluster))) == {"other"}
    assert await payloads(cluster) == [b"app", b"other"]
    assert left.ledger not in await ledgers(cluster) and not await notes(cluster)
    with pytest.raises(NotFound, match=r"stream sinks.*applications=1"):
        await bk.forget_sink(NAME, "app")


async def test_a_run_of_a_forgotten_application_ends_with_its_next_batch(cluster: SmallCluster) -> None:
    """Its batch is in no list, and its ledger is deleted: nothing of it is there twice when it begins again."""
    bk, operator = cluster.client(), cluster.client()
    sink = await opened(bk)
    await committed(bk, sink, 0, [b"a"])
    written = await part(bk, sink, 1, [b"b"])
    await operator.forget_sink(NAME, "app")
    with pytest.raises(StreamFenced, match="forgotten"):
        await sink.commit(1, [written])
    again = await opened(bk, query="another")
    assert again.batch == -1, "as a new application"
    await committed(bk, again, 0, [b"c"])
    assert await payloads(cluster) == [b"a", b"c"]
    with pytest.raises(CheckpointLost):
        await opened(bk)


async def test_the_answer_that_an_application_is_forgotten_may_be_lost(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    await committed(bk, await opened(bk), 0, [b"a"])
    StoreFaults(bk, monkeypatch).script = once(LOSE, of_list)
    assert (await bk.forget_sink(NAME, "app")).batch == 0
    assert not applications(await read_list(cluster)) and await payloads(cluster) == [b"a"]
