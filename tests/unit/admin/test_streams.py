"""What an operator is told of streams: whose they are and why, what is in them, and how far their cursors are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.small_cluster import SmallCluster
from tallystick import BookKeeper, Position, StreamSettings
from tallystick.admin import streams
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.stream.settings import StreamClientSettings
from tallystick.bookkeeper.wire.stream_values import StreamInfo, StreamLedger
from tallystick.errors import NoSuchStream, UsageError

NAME = "t/n/persistent/s"


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


@pytest.fixture
async def bk(cluster: SmallCluster) -> BookKeeper:
    return cluster.client(9)


def owner(cluster: SmallCluster, name: str) -> BookKeeper:
    return cluster.client(sum(name.encode()), streams=StreamClientSettings(owner=name))


async def test_a_stream_is_made_once(bk: BookKeeper) -> None:
    assert [await streams.create_stream(bk, NAME) for _ in range(2)] == [True, False]
    assert [name async for name, _ in streams.list_streams(bk, "t")] == [NAME]
    with pytest.raises(UsageError):
        await streams.create_stream(bk, "s")


async def test_whose_a_stream_is_and_why(cluster: SmallCluster, bk: BookKeeper) -> None:
    with pytest.raises(NoSuchStream):
        await streams.stream_ownership(bk, NAME)
    await streams.create_stream(bk, NAME)

    async def told() -> tuple[str, str]:
        ownership = await streams.stream_ownership(bk, NAME)
        return ownership.owner, ownership.why

    assert await told() == ("nobody", "nothing was ever appended")
    async with owner(cluster, "alice").open_stream(NAME) as stream:
        assert await told() == ("alice", "its lease is alive")
        lease = (await streams.stream_ownership(bk, NAME)).lease
        assert lease is not None and lease.since_ms is not None
        await stream.append(b"a")
    who, why = await told()
    assert who == "nobody" and why.startswith("alice closed ledger 0 and gave the stream back")
    bob = owner(cluster, "bob")
    stream = await bob.open_stream(NAME)
    await stream.append(b"b")
    await bob.close()  # as if it died, but for its lease
    assert await told() == (
        "nobody",
        "bob ended, or lost its session, before it closed ledger 1: the next owner recovers it",
    )
    dave = await owner(cluster, "dave").open_stream(NAME)
    assert await told() == (
        "dave",
        "its lease is alive; before, bob had it, and ended or lost its session before it closed ledger 1",
    )
    async with owner(cluster, "carol").open_stream(NAME, takeover=True) as stream:
        why = "its lease is alive; before, dave had it, and was taken over"
        assert await told() == ("carol", why)
        await stream.append(b"c")
        await stream.roll_over()
        assert await told() == ("carol", why)  # its later ledgers say it, too
    dave.abort()
    async with owner(cluster, "carol").open_stream(NAME) as stream:
        assert (await told())[1].endswith("before, carol had it, closed ledger 4, and gave it back")
        last = await stream.terminate()
    assert await told() == ("nobody", f"the stream was terminated at {last}: it takes no more messages")


async def test_a_stream_that_sinks_write_is_told_of_them(bk: BookKeeper) -> None:
    sink = await bk.open_sink(NAME, "to-orders", "query-1")
    async with bk.sink_attempt(sink.ticket, 0, 0, 0) as written:
        await written.append(b"row")
        await sink.commit(0, [await written.close()])
    ownership = await streams.stream_ownership(bk, NAME)
    assert (ownership.owner, ownership.why) == (
        "nobody",
        "sinks write it, batch by batch, of these applications: to-orders. So it needs no owner",
    )


async def test_an_owner_that_has_made_no_ledger_yet_is_not_told_the_story_of_the_one_before(
    cluster: SmallCluster, bk: BookKeeper
) -> None:
    await owner(cluster, "alice").open_stream(NAME)
    await owner(cluster, "bob").open_stream(NAME, takeover=True)
    ownership = await streams.stream_ownership(bk, NAME)
    assert (ownership.owner, ownership.why) == ("bob", "its lease is alive; before, alice had it, and was taken over")
    context = owner(cluster, "carol").stream_context
    await context.leases.take(context.catalog.paths.owner(NAME), takeover=True)
    ownership = await streams.stream_ownership(bk, NAME)
    assert (ownership.owner, ownership.why) == ("carol", "its lease is alive")


async def test_a_ledger_that_no_owner_of_ours_made(cluster: SmallCluster, bk: BookKeeper) -> None:
    await streams.create_stream(bk, NAME)
    writer = await bk.create_ledger(3)
    catalog = bk.stream_context.catalog
    version = await catalog.write(NAME, StreamInfo((StreamLedger(writer.id, has_counts=False),)), 0)
    ownership = await streams.stream_ownership(bk, NAME)
    assert ownership.owner == "perhaps a Pulsar broker"
    assert ownership.why == f"ledger {writer.id} is open, and no owner of ours made it"
    await writer.close()
    ownership = await streams.stream_ownership(bk, NAME)
    assert (ownership.owner, ownership.why.partition(":")[2]) == ("nobody", " whoever wrote it has ended")
    await catalog.write(NAME, StreamInfo((StreamLedger(1 << 40, has_counts=False),)), version)
    ownership = await streams.stream_ownership(bk, NAME)
    assert ownership.why == f"its newest ledger, {1 << 40}, does not exist: the next owner drops it"


async def test_what_is_in_a_stream_as_its_owner_and_others_tell_it(cluster: SmallCluster, bk: BookKeeper) -> None:
    async with owner(cluster, "alice").open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=2)) as stream:
        for number in range(5):
            await stream.append(b"%d" % number)
        await asyncio.sleep(0.3)  # it tells the idle end
        status, told = await streams.stream_status(bk, NAME), stream.state()
    assert (status.first, status.last, status.entries) == (Position(0, 0), Position(2, 0), 5)
    found = status.state()
    for name in ("entriesAddedCounter", "lastLedgerCreatedTimestamp", "totalSize", "currentLedgerSize"):
        assert name in found  # but only its owner knows them
        del found[name], told[name]
    # Whether copies are missing only others look up, in the marks of the auditor.
    assert [ledger.pop("underReplicated") for ledger in found["ledgers"]] == [False, False, False]
    assert found == told
    status = await streams.stream_status(bk, NAME)
    assert (status.entries, status.state()["state"], status.state()["numberOfEntries"]) == (5, "ClosedLedger", 5)


async def test_what_is_left_without_bookies(cluster: SmallCluster, bk: BookKeeper) -> None:
    async with owner(cluster, "alice").open_stream(NAME) as stream:
        await stream.append(b"a")
    async with owner(cluster, "alice").open_stream(NAME):
        pass
    stream = await owner(cluster, "alice").open_stream(NAME)
    await cluster.down("b0", "b1", "b2")
    status = await streams.stream_status(bk, NAME)
    assert (status.ownership.owner, status.last, status.entries) == ("alice", None, None)
    assert status.state()["lastConfirmedEntry"] == "-1:-1"
    stream.abort()


async def test_how_far_cursors_are(cluster: SmallCluster, bk: BookKeeper) -> None:
    alice = owner(cluster, "alice")
    async with alice.open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=4)) as stream:
        for number in range(10):
            await stream.append(b"%d" % number)
    async with alice.cursor(NAME, "a b") as cursor:
        await cursor.ack_up_to("0:1")
        await cursor.ack_batch(["0:3", "1:0", "2:0"])
        [status] = await streams.cursor_statuses(bk, NAME)
        assert (status.name, status.owner, status.state.mark) == ("a b", "alice", Position(0, 1))
    await (await alice.cursor(NAME, "late", start="end")).close()
    found = {one.name: one for one in await streams.cursor_statuses(bk, NAME)}
    assert {name: (one.backlog, one.owner) for name, one in found.items()} == {
        "a b": (5, "nobody"),
        "late": (0, "nobody"),
    }
    shown = (await streams.stream_status(bk, NAME)).state()["cursors"]
    assert shown.keys() == found.keys() and shown["a b"]["markDeletePosition"] == "0:1"


@pytest.mark.parametrize("is_raw", [False, True])
async def test_which_format_the_newest_entry_has(cluster: SmallCluster, bk: BookKeeper, is_raw: bool) -> None:
    assert await streams.newest_is_raw(bk, NAME) is None
    settings = StreamSettings(entry_format="raw" if is_raw else "pulsar")
    async with owner(cluster, "alice").open_stream(NAME, settings=settings) as stream:
        assert await streams.newest_is_raw(bk, NAME) is None
        await stream.append(b"a")
    assert await streams.newest_is_raw(bk, NAME) is is_raw


INFO = StreamInfo(
    (StreamLedger(3, 2, timestamp_ms=1), StreamLedger(5, 4, timestamp_ms=1), StreamLedger(8, has_counts=False))
)


@pytest.mark.parametrize(
    ("end", "count", "position"),
    [
        (Position(8, 3), 0, Position(8, 3)),
        (Position(8, 3), 3, Position(8, 0)),
        (Position(8, 3), 4, Position(5, 3)),
        (Position(8, 3), 9, Position(3, 0)),
        (Position(8, 3), 99, Position(3, 0)),
        (Position(8, 0), 1, Position(5, 3)),
        (Position(5, 1), 2, Position(3, 1)),
    ],
)
def test_so_many_entries_back(end: Position, count: int, position: Position) -> None:
    assert streams.entries_back(INFO, end, count) == position


def test_nothing_is_before_an_empty_stream() -> None:
    assert streams.entries_back(StreamInfo(), Position(-1, 0), 5) == Position(-1, -1)


@pytest.mark.rule("Q18")
async def test_a_ledger_that_lacks_copies_is_under_replicated(cluster: SmallCluster, bk: BookKeeper) -> None:
    async with owner(cluster, "alice").open_stream(NAME, settings=StreamSettings(max_entries_per_ledger=1)) as stream:
        await stream.append(b"1")
        await stream.append(b"2")
        marked = stream.state()["ledgers"][1]["ledgerId"]
        await Underreplication(cluster.driver).mark(marked, ["b0"], 1)
        ledgers = (await streams.stream_status(bk, NAME)).state()["ledgers"]
    assert [ledger["ledgerId"] for ledger in ledgers if ledger["underReplicated"]] == [marked]
