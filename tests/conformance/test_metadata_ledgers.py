"""Ledger metadata in every coordination service: compare-and-set, ids, listings, watches."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.waiting import until
from tallystick.bookkeeper.metadata.driver import MetadataDriver, Record
from tallystick.bookkeeper.wire import metadata as wire
from tallystick.bookkeeper.wire.values import MAX_ID, BookieInfo, DigestType, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import LedgerExists, MetadataConflict, NoSuchLedger, UsageError

if TYPE_CHECKING:
    from conformance.conftest import Place

METADATA = LedgerMetadata(
    3, 2, 2, (Fragment(0, ("b1", "b2", "b3")),), DigestType.CRC32C, b"secret", custom={"application": b"\x00\xff"}
)


async def listed(driver: MetadataDriver) -> list[int]:
    return [ledger async for ledger in driver.ledgers()]


@pytest.mark.rule("Q2", "Q3")
async def test_q3_a_created_ledger_is_read_as_it_was_written(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    created = await one.create_ledger(METADATA)
    found = await other.read_ledger(created.value)
    assert found.value == METADATA
    assert found.version == created.version
    assert found.value.ctime_ms is not None
    assert not found.value.ctime_stored


@pytest.mark.rule("Q2")
async def test_q2_ids_are_unique_among_clients(cluster: Place) -> None:
    clients = [await cluster.connect() for _ in range(4)]
    created = await asyncio.gather(*(client.create_ledger(METADATA) for client in clients * 5))
    ids = [each.value for each in created]
    assert len(set(ids)) == 20
    assert await listed(clients[0]) == sorted(ids)


async def test_an_id_is_not_given_again(cluster: Place) -> None:
    driver = await cluster.connect()
    first = (await driver.create_ledger(METADATA)).value
    await driver.delete_ledger(first)
    assert (await driver.create_ledger(METADATA)).value > first


async def test_a_chosen_id_is_taken_once(cluster: Place) -> None:
    driver = await cluster.connect()
    assert (await driver.create_ledger(METADATA, 5)).value == 5
    with pytest.raises(LedgerExists):
        await driver.create_ledger(METADATA, 5)


async def test_generated_ids_pass_over_chosen_ones(cluster: Place) -> None:
    driver = await cluster.connect()
    for chosen in (0, 1, 2):
        await driver.create_ledger(METADATA, chosen)
    assert (await driver.create_ledger(METADATA)).value not in (0, 1, 2)


async def test_an_own_create_tried_again_is_a_success(cluster: Place) -> None:
    driver = await cluster.connect()
    mine = replace(METADATA, ctoken=77)
    assert await driver.create_ledger(mine, 9) == await driver.create_ledger(mine, 9)
    with pytest.raises(LedgerExists):
        await driver.create_ledger(replace(METADATA, ctoken=78), 9)


@pytest.mark.parametrize("wrong", [-1, MAX_ID + 1])
async def test_ids_out_of_range_are_refused(cluster: Place, wrong: int) -> None:
    driver = await cluster.connect()
    for call in (driver.create_ledger(METADATA, wrong), driver.read_ledger(wrong), driver.delete_ledger(wrong)):
        with pytest.raises(UsageError):
            await call


@pytest.mark.rule("Q8")
async def test_q8_only_the_version_that_was_read_can_be_replaced(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    ledger, version = (await one.create_ledger(METADATA)).value, 0
    changed = METADATA.with_fragment(4, ("b1", "b2", "b4"))
    version = await one.write_ledger(ledger, changed, version)
    with pytest.raises(MetadataConflict):
        await other.write_ledger(ledger, METADATA.in_recovery(), 0)
    found = await other.read_ledger(ledger)
    assert (found.value, found.version) == (changed, version)


@pytest.mark.parametrize("read_only", [False, True])
async def test_metadata_of_a_ledger_that_is_written_while_a_bookie_is_down_stays_while_it_is_registered(
    cluster: Place, read_only: bool
) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    created = await one.create_ledger(METADATA)
    registration = await one.register("bookie-1", BookieInfo.at("127.0.0.1", 1), read_only=read_only)
    with pytest.raises(MetadataConflict):
        await other.write_ledger(created.value, METADATA.in_recovery(), created.version, absent=["b0", "bookie-1"])
    assert (await other.read_ledger(created.value)).value == METADATA
    await registration.close()
    await other.write_ledger(created.value, METADATA.in_recovery(), created.version, absent=["b0", "bookie-1"])
    assert (await one.read_ledger(created.value)).value == METADATA.in_recovery()


@pytest.mark.rule("Q16")
async def test_q16_a_closed_ledger_keeps_its_end(cluster: Place) -> None:
    driver = await cluster.connect()
    created = await driver.create_ledger(METADATA)
    await driver.write_ledger(created.value, METADATA.closed(41, 4200), created.version)
    found = (await driver.read_ledger(created.value)).value
    assert (found.state, found.last_entry, found.length) == (LedgerState.CLOSED, 41, 4200)
    assert found.ctoken == 0, "a rewritten ledger carries no creation token"


async def test_what_is_not_there(cluster: Place) -> None:
    driver = await cluster.connect()
    for call in (driver.read_ledger(404), driver.write_ledger(404, METADATA, 0), driver.delete_ledger(404)):
        with pytest.raises(NoSuchLedger):
            await call


async def test_a_deleted_ledger_is_gone(cluster: Place) -> None:
    driver = await cluster.connect()
    ledger = (await driver.create_ledger(METADATA)).value
    await driver.delete_ledger(ledger)
    assert await listed(driver) == []
    with pytest.raises(NoSuchLedger):
        await driver.read_ledger(ledger)


async def test_listings_ascend_across_short_and_long_ids(either_cluster: Place) -> None:
    driver = await either_cluster.connect()
    edge = (1 << 31) - 1
    ids = [0, 1, 9_999, 10_000, 99_999_999, 100_000_000, edge - 1, edge, edge + 1, 1 << 40, MAX_ID]
    seed = random.randrange(1 << 30)
    print("seed", seed)
    for ledger in random.Random(seed).sample(ids, len(ids)):
        await driver.create_ledger(METADATA, ledger)
    assert await listed(driver) == ids
    for ledger in ids[::2]:
        await driver.delete_ledger(ledger)
    assert await listed(driver) == ids[1::2]


async def test_ids_of_63_bits_are_taken_once_and_read_written_watched_and_deleted(either_cluster: Place) -> None:
    one, other, heard = await either_cluster.connect(), await either_cluster.connect(), asyncio.Event()
    ids = [0, 7, (1 << 31) - 2, (1 << 31) - 1, 1 << 62, MAX_ID]
    watch = other.watch_ledger(MAX_ID, heard.set)
    for _ in range(2):  # an id that was deleted can be given again
        for ledger in ids:
            assert (await one.create_ledger(METADATA, ledger)).value == ledger
        for ledger in ids:
            with pytest.raises(LedgerExists):
                await other.create_ledger(METADATA, ledger)
        await until(heard.is_set)
        watch.cancel()
        found = await other.read_ledger(MAX_ID)
        assert found.value == METADATA
        await other.write_ledger(MAX_ID, METADATA.closed(1, 2), found.version)
        assert (await one.read_ledger(MAX_ID)).value.is_closed
        assert set((await one.look(ids)).by_ledger) == set(ids) == set(await one.read_ledgers(ids))
        assert (await one.create_ledger(METADATA)).value not in ids
        async for ledger in other.ledgers():
            await other.delete_ledger(ledger)
        assert await listed(one) == []


async def test_concurrent_changes_are_all_applied_once(cluster: Place) -> None:
    """Each client adds to one number, by compare-and-set."""
    clients = [await cluster.connect() for _ in range(4)]
    ledger = (await clients[0].create_ledger(replace(METADATA, custom={"count": b"0"}))).value

    async def add(client: MetadataDriver) -> None:
        while True:
            found = await client.read_ledger(ledger)
            count = b"%d" % (int(found.value.custom["count"]) + 1)
            try:
                await client.write_ledger(ledger, replace(found.value, custom={"count": count}), found.version)
                return
            except MetadataConflict:
                pass

    await asyncio.gather(*(add(client) for client in clients * 10))
    assert (await clients[1].read_ledger(ledger)).value.custom["count"] == b"40"


async def test_watchers_hear_of_own_and_other_changes(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    ledger, unrelated = [(await one.create_ledger(METADATA)).value for _ in range(2)]
    heard = {"one": 0, "other": 0, "unrelated": 0}

    def count(name: str) -> None:
        heard[name] += 1

    one.watch_ledger(ledger, lambda: count("one"))
    other.watch_ledger(ledger, lambda: count("other"))
    other.watch_ledger(unrelated, lambda: count("unrelated"))
    version = (await other.read_ledger(ledger)).version
    version = await one.write_ledger(ledger, METADATA.in_recovery(), version)
    await until(lambda: heard["one"] >= 1 and heard["other"] >= 1)

    before = dict(heard)
    await other.write_ledger(ledger, METADATA.closed(0, 1), version)
    await until(lambda: heard["one"] > before["one"] and heard["other"] > before["other"])

    before = dict(heard)
    await one.delete_ledger(ledger)
    await until(lambda: heard["one"] > before["one"] and heard["other"] > before["other"])
    assert heard["unrelated"] == 0


async def test_a_change_right_after_the_watch_is_heard(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    ledger = (await one.create_ledger(METADATA)).value
    for version in range(20):
        heard = asyncio.Event()
        watch = other.watch_ledger(ledger, heard.set)
        assert (await other.read_ledger(ledger)).version == version
        await one.write_ledger(ledger, METADATA, version)
        async with asyncio.timeout(20):
            await heard.wait()
        assert (await other.read_ledger(ledger)).version == version + 1, "who is called sees the change"
        watch.cancel()


async def test_watchers_hear_of_a_creation(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    heard = [asyncio.Event(), asyncio.Event()]
    for driver, event in zip((one, other), heard, strict=True):
        driver.watch_ledger(7, event.set)
        with pytest.raises(NoSuchLedger):
            await driver.read_ledger(7)
    await one.create_ledger(METADATA, 7)
    async with asyncio.timeout(20):
        await asyncio.gather(*(event.wait() for event in heard))
    assert (await other.read_ledger(7)).version == 0


async def test_a_cancelled_watch_is_silent(cluster: Place) -> None:
    driver = await cluster.connect()
    ledger = (await driver.create_ledger(METADATA)).value
    first, second = [], asyncio.Event()
    driver.watch_ledger(ledger, lambda: first.append(1)).cancel()
    driver.watch_ledger(ledger, second.set)
    await driver.read_ledger(ledger)
    await driver.write_ledger(ledger, METADATA, 0)
    async with asyncio.timeout(20):
        await second.wait()
    assert not first


async def test_a_synced_listing_and_synced_reads_see_what_others_did(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    states: dict[int, LedgerState | None] = {}
    for turn in range(5):
        made = [(await one.create_ledger(METADATA)).value for _ in range(4)]
        await one.write_ledger(made[1], METADATA.in_recovery(), 0)
        await one.write_ledger(made[2], METADATA.closed(7, 70), 0)
        await one.delete_ledger(made[3])
        states |= dict(zip(made, (LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED, None), strict=True))
        before = await other.sync()
        assert await listed(other) == [ledger for ledger, state in states.items() if state is not None], turn
        found = await other.look_up(list(states))
        assert await other.sync() == before
        assert before.instance == await one.instance_id()
        assert {ledger: record and record.state for ledger, record in found.items()} == states


async def test_a_ledger_made_again_has_another_creation(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    creations = []
    for _ in range(3):
        await one.create_ledger(METADATA, 5)
        first = (await one.look_up([5]))[5]
        await one.write_ledger(5, METADATA.closed(0, 1), 0)
        await other.sync()
        found = (await other.look_up([5]))[5]
        assert isinstance(found, Record) and isinstance(first, Record)
        assert found.creation == first.creation, "a change is no creation"
        creations.append(found.creation)
        await other.delete_ledger(5)
    assert len(set(creations)) == 3


async def test_nothing_was_created_after_the_newest_creation(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    before = (await other.sync()).newest
    for ledger in (4711, 4712):
        await one.create_ledger(METADATA, ledger)
        moment, found = await other.sync(), (await other.look_up([ledger]))[ledger]
        assert found is not None
        assert before < found.creation <= moment.newest
        await one.delete_ledger(ledger)
        before = (await other.sync()).newest
        assert before >= found.creation, "what was created and deleted counts"
    await one.write_cookie("b9", b"cookie", None)
    created = await other.bookie_creation("b9")
    assert created is not None
    assert before < created <= (await other.sync()).newest
    assert await other.never_made([created, 1 << 62]) == {1 << 62}


async def test_a_look_finds_what_was_stored_before_it_and_between_which_moments(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    instance = await one.instance_id()
    for ledger in (5, 6):
        before = await one.sync()
        await one.create_ledger(METADATA, ledger)
        seen = await other.look([ledger, 4711])
        record = seen.by_ledger[ledger]
        assert record is not None and record.state is LedgerState.OPEN
        assert before.newest < record.creation <= seen.start.newest
        assert (seen.by_ledger[4711], seen.start.instance) == (None, instance)
        assert seen.start == seen.end == await other.sync()
        await one.delete_ledger(ledger)
        assert (await other.look([ledger])).by_ledger == {ledger: None}
    assert (await one.look([])).by_ledger == {}


async def test_looking_up_many_and_none(cluster: Place) -> None:
    driver = await cluster.connect()
    made = [(await driver.create_ledger(METADATA)).value for _ in range(150)]
    found = await driver.look_up([*made, 10**12])
    assert [ledger for ledger, record in found.items() if record is None] == [10**12]
    assert await driver.look_up([]) == {}


async def test_reading_many_is_reading_each(cluster: Place) -> None:
    one, other = await cluster.connect(), await cluster.connect()
    made = [(await one.create_ledger(METADATA)).value for _ in range(150)]
    await one.write_ledger(made[3], METADATA.closed(7, 70), 0)
    await one.delete_ledger(made[4])
    await other.sync()
    found = await other.read_ledgers([*made, 10**12])
    assert sorted(found) == [ledger for ledger in made if ledger != made[4]]
    for ledger in (made[0], made[3], made[149]):
        node, single = found[ledger], await other.read_ledger(ledger)
        decoded = wire.decode(node.data, ctime_ms=node.ctime_ms)
        assert (decoded, decoded.ctime_ms) == (single.value, single.value.ctime_ms)
        assert node.version == single.version
    assert await other.read_ledgers([]) == {}
    with pytest.raises(UsageError):
        await other.read_ledgers([-1])
