"""Streams of ours that an unmodified Pulsar broker with its default settings adopts, deletes and gives back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tallystick
from support.waiting import until
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.state import Stored, internal_info
from tallystick.bookkeeper.wire.stream_values import EARLIEST, NO_LEDGER, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import Fragment, LedgerId, LedgerMetadata
from tallystick.errors import StreamFenced, StreamOwned

pulsar = pytest.importorskip("pulsar")

from support.pulsar_topics import (  # noqa: E402
    DEFAULT,
    KEPT,
    Message,
    PulsarTopics,
    append,
    messages,
    read_all,
)
from support.unused_topics import DELETED, FORCED, HELD, UNHELD, UnusedTopics  # noqa: E402

pytestmark = pytest.mark.usefixtures("unused_topics")  # time passes for them meanwhile
CLOSED = LedgerMetadata(3, 2, 2, (Fragment(0, ("b1", "b2", "b3")),)).closed(9, 1_000)
ONCE = "tally/once/persistent"
SHORT = StreamSettings(max_entries_per_ledger=40)
LIVE = {"entriesAddedCounter", "lastLedgerCreatedTimestamp", "schemaLedgers", "compactedLedger", "cursors"}


async def acked(bk: BookKeeper, stream: str, cursor: str, places: list[int]) -> None:
    """The messages at these places are acknowledged, and the cursor is left as it is."""
    opened = await bk.cursor(stream, cursor)
    read = await opened.read(max(places) + 1)
    await opened.ack_batch([read[place] for place in places])


async def ledger_of(bk: BookKeeper, stream: str, cursor: str) -> LedgerId:
    return (await bk.stream_context.catalog.read_cursor(stream, cursor)).value.ledger


async def has_ledger(bk: BookKeeper, stream: str, cursor: str, *, but: LedgerId = NO_LEDGER) -> bool:
    return await ledger_of(bk, stream, cursor) not in (NO_LEDGER, but)


def without(sent: list[Message], places: list[int]) -> list[Message]:
    return [message for place, message in enumerate(sent) if place not in places]


def lasting(stats: dict[str, Any]) -> dict[str, Any]:
    """What does not change by a stream being opened; whether ledgers are under-replicated nobody of ours has seen."""
    kept = {key: value for key, value in stats.items() if key not in LIVE}
    kept["ledgers"] = [{k: v for k, v in each.items() if k != "underReplicated"} for each in stats["ledgers"]]
    return kept


@pytest.mark.rule("Q18", "Q19")
async def test_q19_a_stream_becomes_a_topic_and_comes_back_with_its_cursors(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    """Without retention: its durable cursors hold it. One is left in its node, one in its ledger."""
    stream, in_node, in_ledger = f"{DEFAULT}/adopted", [0, 2, 4, 5, 90], [1, 3, 41]
    async with tallystick.connect(topics.uri) as owner:
        handle = await owner.open_stream(stream, settings=SHORT)
        sent = await append(handle, messages(90, keyed=True))
        batch = await handle.append_batch([b"x", b"y", b"z"])
        sent += [Message(position, data) for position, data in zip(batch, (b"x", b"y", b"z"), strict=True)]
        sent += await append(handle, messages(7, first=90))
        await until_read(bk, stream, len(sent))
        await acked(owner, stream, "in-ledger", in_ledger)
        async with owner.cursor(stream, "in-node") as cursor:
            read = await cursor.read(len(sent))
            await cursor.ack_batch([read[place] for place in in_node])
        assert await has_ledger(owner, stream, "in-ledger") and not await has_ledger(owner, stream, "in-node")
        with pytest.raises(StreamOwned, match="a cursor is open"):
            await owner.hand_over(stream)
        before = handle.state()
        deletions = await owner.hand_over(stream, takeover=True)
    assert not deletions

    stats = await topics.internal_stats(stream)
    newest = stats["ledgers"].pop()
    assert [each["entries"] for each in stats["ledgers"]] == [40, 40, 18] and newest["entries"] == 0
    for key in ("numberOfEntries", "totalSize", "lastConfirmedEntry", "state", "properties", "pendingAddEntriesCount"):
        assert stats[key] == before[key], key
    assert lasting(stats)["ledgers"][:2] == lasting(before)["ledgers"][:2]
    assert stats["cursors"]["in-node"]["individuallyDeletedMessages"] != "[]"
    await same_info(topics, bk, stream)

    with pytest.raises(StreamOwned, match="a Pulsar broker may write it") as owned:
        await bk.take_back(stream)
    assert owned.value.owner == topics.broker.address
    assert await topics.consume(stream, len(sent)) == sent
    assert await topics.subscribe(stream, "in-ledger", len(sent) - 3) == without(sent, in_ledger)
    # A broker that loads a topic forgets which batches are acknowledged in part, of its own cursors, too.
    in_node.remove(90)
    assert await topics.subscribe(stream, "in-node", len(sent) - 4) == without(sent, in_node)
    there = await topics.produce(stream, messages(60, first=200))
    ours = await ledger_of(bk, stream, "in-ledger")
    await topics.subscribe(stream, "in-ledger", 10, ack=True)
    # A broker loses acknowledgements when it unloads a topic while it makes the cursor's ledger for them: another one.
    await until(lambda: has_ledger(bk, stream, "in-ledger", but=ours))

    await topics.unload(stream)
    async with bk.take_back(stream, settings=SHORT) as back:
        assert back.last_confirmed == there[-1].position
        again = await append(back, messages(10, first=300))
        everything = [*sent, *there, *again]
        await until_read(bk, stream, len(everything))
        assert await read_all(bk, stream) == everything
        await same_info(topics, bk, stream)
        async with bk.cursor(stream, "in-node") as cursor:
            unread = await cursor.read(1000, wait=False)
            assert [m.position for m in unread] == [m.position for m in without(everything, in_node)]
        async with bk.cursor(stream, "in-ledger") as cursor:
            first = (await cursor.read(1, wait=False))[0]
            assert first.position == without(sent, in_ledger)[10].position


async def until_read(bk: BookKeeper, stream: str, count: int) -> None:
    """Our owner says how far it is 100 ms after its last append."""

    async def is_there() -> bool:
        return len(await read_all(bk, stream)) == count

    await until(is_there, pause=0.05)


async def same_info(topics: PulsarTopics, bk: BookKeeper, stream: str) -> None:
    """The broker reads the metadata as ours does."""
    catalog = bk.stream_context.catalog
    stored = await catalog.read(stream, synced=True)
    cursors = {name: await catalog.read_cursor(stream, name) for name in await catalog.cursors(stream)}
    ours = internal_info(
        stored.value,
        Stored(stored.version),
        {name: (each.value, Stored(each.version)) for name, each in cursors.items()},
        now_ms=0,
    )
    namespace, _, topic = stream.replace("/persistent/", "|").partition("|")
    theirs = await topics.admin("GET", f"persistent/{namespace}/{topic}/internal-info")

    def timeless(info: dict[str, Any]) -> dict[str, Any]:
        for each in (info, *info["cursors"].values()):
            for key in ("creationDate", "modificationDate"):
                each.pop(key, None)
        info["ledgers"][-1].pop("timestamp")  # of an open one it is now
        return info

    assert timeless(ours) == timeless(theirs)


@pytest.mark.rule("Q19")
async def test_q19_a_stream_whose_owner_died_is_adopted_with_its_open_ledger(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    """Nobody handed it over: the broker fences the newest ledger, and an owner that is still there hears of it. The
    ledger of a cursor is open, too."""
    stream, holes = f"{KEPT}/orphaned", [1, 3, 41]
    await bk.create_for_pulsar(stream)
    async with tallystick.connect(topics.uri) as dying:
        sent = await append(await dying.open_stream(stream, settings=SHORT), messages(90))
        await until_read(bk, stream, len(sent))
        await acked(dying, stream, "in-ledger", holes)
    async with tallystick.connect(topics.uri) as living:
        handle = await living.open_stream(stream, settings=SHORT)
        sent += await append(handle, messages(10, first=90))
        assert await topics.consume(stream, len(sent)) == sent
        with pytest.raises(StreamFenced):
            await handle.append(b"too late")
    sent += await topics.produce(stream, messages(20, first=100))
    assert await topics.subscribe(stream, "in-ledger", len(sent) - 3) == without(sent, holes)
    await topics.unload(stream)
    assert await read_all(bk, stream) == sent


def numbers(read: list[Message]) -> list[int]:
    return [int(message.data[:8]) for message in read]


async def append_numbered(bk: BookKeeper, stream: str, count: int) -> list[Position]:
    """The first messages of ours, of which one is repeated. The stream is left to the broker then."""
    async with bk.open_stream(stream, settings=SHORT) as handle:
        positions = [
            (await append(handle, [message], producer="ours", sequence=number))[0].position
            for number, message in enumerate(messages(count))
        ]
        assert await handle.append(b"repeated", producer="ours", sequence=7) == positions[7]
        assert not await bk.hand_over(stream)
    return positions


@pytest.mark.rule("Q19")
async def test_q19_numbered_appends_beside_a_broker_without_deduplication(topics: PulsarTopics, bk: BookKeeper) -> None:
    """It stores what is repeated, and deletes the cursor with the numbers: ours reads them from the entries then."""
    stream = f"{KEPT}/numbered"
    await bk.create_for_pulsar(stream)
    await append_numbered(bk, stream, 50)
    assert await bk.stream_context.catalog.cursors(stream) == ["pulsar.dedup"]
    there = await topics.produce(stream, messages(20, first=40), producer_name="ours", initial_sequence_id=39)
    other = await topics.produce(stream, messages(10, first=100), producer_name="other", initial_sequence_id=99)
    await topics.unload(stream)
    assert await bk.stream_context.catalog.cursors(stream) == []

    async with bk.take_back(stream, settings=SHORT) as back:
        assert await back.append(b"repeated", producer="ours", sequence=59) == there[-1].position
        assert await back.append(b"repeated", producer="other", sequence=109) == other[-1].position
        await append(back, messages(1, first=60), producer="ours", sequence=60)
        await append(back, messages(1, first=110), producer="other", sequence=110)
    wanted = [*range(50), *range(40, 60), *range(100, 110), 60, 110]
    assert numbers(await read_all(bk, stream)) == wanted


@pytest.mark.rule("Q19")
async def test_q19_numbered_appends_beside_a_broker_with_deduplication(topics: PulsarTopics, bk: BookKeeper) -> None:
    """Each refuses what the other has stored."""
    stream = f"{ONCE}/numbered"
    await bk.create_for_pulsar(stream)
    await topics.admin("POST", "namespaces/tally/once/deduplication", True)
    await append_numbered(bk, stream, 50)
    there = await topics.produce(stream, messages(20, first=40), producer_name="ours", initial_sequence_id=39)
    other = await topics.produce(stream, messages(10, first=100), producer_name="other", initial_sequence_id=99)
    await topics.unload(stream)
    async with bk.take_back(stream, settings=SHORT) as back:
        assert await back.append(b"repeated", producer="ours", sequence=59) in (there[-1].position, EARLIEST)
        assert await back.append(b"repeated", producer="other", sequence=109) in (other[-1].position, EARLIEST)
        await append(back, messages(1, first=60), producer="ours", sequence=60)
        await append(back, messages(1, first=110), producer="other", sequence=110)
        await bk.hand_over(stream)
    await topics.produce(stream, messages(3, first=59), producer_name="ours", initial_sequence_id=58)
    await topics.unload(stream)
    wanted = [*range(60), *range(100, 110), 60, 110, 61]
    assert numbers(await read_all(bk, stream)) == wanted


@pytest.mark.rule("Q19")
async def test_q19_what_sinks_wrote_is_a_topic_in_which_a_producer_of_their_name_begins_with_its_first_number(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    """With deduplication; and the ledger without entries where sinks began disturbs no broker."""
    stream = f"{ONCE}/sinks"
    await bk.create_for_pulsar(stream)
    await topics.admin("POST", f"namespaces/{ONCE.removesuffix('/persistent')}/deduplication", True)
    async with bk.open_stream(stream) as owner:
        await append(owner, messages(5))
    sink = await bk.open_sink(stream, "app", "q", switch=True)
    for batch in range(2):
        async with sink.attempt(batch) as attempt:
            await attempt.append_batch([message.data for message in messages(5, first=5 + batch * 5)])
            await sink.commit(batch, [await attempt.close()])
    assert [int(each.data[:8]) for each in await topics.consume(stream, 15)] == [*range(15)]
    await topics.produce(stream, messages(5, first=15), producer_name="app", initial_sequence_id=-1)
    await topics.unload(stream)
    async with bk.take_back(stream, takeover=True) as back:
        await append(back, messages(1, first=20), producer="app", sequence=5)
    assert numbers(await read_all(bk, stream)) == [*range(21)]


@pytest.mark.rule("Q20")
async def test_q20_a_long_list_is_a_topic_and_comes_back(topics: PulsarTopics, bk: BookKeeper) -> None:
    """It is compressed in blocks. Its first ledgers are closed, and no bookie has anything of them."""
    stream, count = f"{KEPT}/long", 1_500
    catalog = bk.stream_context.catalog
    async with bk.open_stream(stream) as handle:
        sent = await append(handle, messages(3))
    stored = await catalog.read(stream, synced=True)
    made = [await bk.context.driver.create_ledger(CLOSED) for _ in range(count)]
    before = tuple(StreamLedger(each.value, 10, 1_000 + number, 1 + number) for number, each in enumerate(made))
    await catalog.write(stream, StreamInfo((*stored.value.ledgers, *before)), stored.version)
    async with bk.open_stream(stream) as handle:  # reads what was written, and writes it with one more
        sent += await append(handle, messages(3, first=3))
        assert not await bk.hand_over(stream, takeover=True)
    node = await catalog.store.get(catalog.paths.stream(stream))
    assert node is not None and node.data.startswith(b"\x47\x78")

    listed = [each["ledgerId"] for each in (await topics.internal_stats(stream))["ledgers"]]
    info = (await catalog.read(stream, synced=True)).value
    assert listed == [each.ledger for each in info.ledgers] and len(listed) == count + 3
    await topics.produce(stream, messages(2, first=6))
    await topics.unload(stream)
    async with await bk.take_back(stream, takeover=True) as handle:
        assert [each["ledgerId"] for each in handle.state()["ledgers"]][: count + 3] == listed


@pytest.mark.rule("Q18")
async def test_q18_the_state_of_a_stream_is_what_the_broker_says_of_the_same_history(
    topics: PulsarTopics, bk: BookKeeper
) -> None:
    """Two ledgers of five and two entries, and an open one with one entry."""
    theirs = f"{KEPT}/theirs"
    ours = "ours/alone/persistent/history"  # no broker looks there
    await bk.create_for_pulsar(theirs)
    parts = [messages(5), messages(2, first=5), messages(1, first=7)]
    for part in parts[:2]:
        await topics.produce(theirs, part, producer_name="p", initial_sequence_id=int(part[0].data[:8]) - 1)
        await topics.unload(theirs)
    await topics.produce(theirs, parts[2], producer_name="p", initial_sequence_id=6)
    handle = await bk.open_stream(ours)
    for number, part in enumerate(parts):
        if number:
            await handle.close()
            handle = await bk.open_stream(ours)
        for message in part:
            sequence = int(message.data[:8])
            await append(handle, [message], producer="p", sequence=sequence)
    state, stats = handle.state(), await topics.internal_stats(theirs)
    await handle.close()
    mine, other = lasting(state), lasting(stats)
    last = mine.pop("lastConfirmedEntry"), other.pop("lastConfirmedEntry")
    ids = [each.pop("ledgerId") for each in mine["ledgers"]], [each.pop("ledgerId") for each in other["ledgers"]]
    assert mine == other
    assert last == tuple(f"{each[-1]}:0" for each in ids)
    assert state["entriesAddedCounter"] == stats["entriesAddedCounter"] == 1
    assert list(state) == [key for key in stats if key not in ("schemaLedgers", "compactedLedger")]


@pytest.mark.rule("Q19")
async def test_q19_what_nobody_uses_is_deleted_as_the_hand_over_said_and_nothing_else(
    topics: PulsarTopics, bk: BookKeeper, unused_topics: UnusedTopics
) -> None:
    """For more than two minutes: a broker looks every 60 s for topics that were not used for 60 s."""
    await asyncio.sleep(max(0.0, 125.0 - unused_topics.unused_s))
    left = await topics.topics("public/default")
    assert HELD in left and FORCED not in left
    assert UNHELD in await topics.topics("tally/kept")
    for stream in (HELD, UNHELD):
        assert await topics.consume(stream, 100) == unused_topics.appended[stream]
        assert await read_all(bk, stream) == unused_topics.appended[stream]
        await topics.unload(stream)
        async with bk.take_back(stream, settings=SHORT) as back:
            assert (await back.append(b"taken back")).entry == 0
    async with bk.cursor(HELD, "billing") as cursor:
        assert await cursor.refresh() == 101
    assert FORCED not in [name async for name in bk.streams(DEFAULT)]


@pytest.mark.rule("Q18")
async def test_a_topic_that_is_deleted_there_leaves_the_disks_of_bookies(
    topics: PulsarTopics, bk: BookKeeper, unused_topics: UnusedTopics
) -> None:
    """They look for deleted ledgers all the time, and believe it after a minute."""
    assert unused_topics.deleted_bytes > 60_000_000 and len(unused_topics.deleted_ledgers) == 2
    assert DELETED not in [name async for name in bk.streams(DEFAULT)]
    await until(lambda: topics.stored_bytes() < unused_topics.deleted_bytes // 2, 90.0, pause=0.2)
    for bookie in topics.bookies:
        for ledger in unused_topics.deleted_ledgers:
            assert await bookie.read_code(ledger, 0) == 1, "there is no such ledger"
