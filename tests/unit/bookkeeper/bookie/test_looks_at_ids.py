"""An id that is used again: entries of the old ledger are never taken for those of the new one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from support.bookies import KEY, Home, Peer, adds, read, talking
from support.waiting import until
from support.watched import METADATA, Watched, answers
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.metadata.driver import Moment
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.codec.steps import finished
from tallystick.errors import DiskFull, MetadataError, MetadataUnavailable, StorageError

BATCH, RECOVERY_ADD = v2.BatchReadFrame(7, -1, 1, 10, 1 << 16).encode(), v2.RequestFlag.RECOVERY_ADD
READS = (read(7, 5), v2.BatchReadFrame(7, 3, 1, 10, 1 << 16).encode())  # of entries, and no more


@pytest.fixture
def looks() -> bool:
    return True


def codes_of(frame: bytes | None) -> int:
    assert frame is not None, "closed"
    answer = v2.decode_response(frame[4:])
    assert isinstance(answer, v2.Response | v2.BatchReadResponse)
    return answer.code


async def remade(driver: Watched, ledger: int, metadata: LedgerMetadata = METADATA) -> None:
    await driver.delete_ledger(ledger)
    await driver.create_ledger(metadata, ledger)


@pytest.fixture
async def old(home: Home, driver: Watched) -> None:
    """Ledger 7 with entries 0 … 9, in a bookie that stopped in order; then it is deleted and made again."""
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert {await peer.code(adds(7, [entry], b"old")) for entry in range(10)} == {Code.OK}
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await remade(driver, 7)


async def creation_of(driver: Watched, ledger: int) -> int:
    record = (await driver.look_up([ledger]))[ledger]
    assert record is not None
    return record.creation


async def entries(peer: Peer) -> list[int]:
    return [entry for entry in range(10) if await peer.code(read(7, entry)) == Code.OK]


@pytest.mark.parametrize("flags", [v2.RequestFlag.NONE, v2.RequestFlag.HIGH_PRIORITY, v2.RequestFlag.RECOVERY_ADD])
async def test_entries_of_a_deleted_ledger_go_before_the_first_of_a_new_one_comes(
    old: None, home: Home, bookie: Bookie, peer: Peer, flags: v2.RequestFlag
) -> None:
    assert await peer.code(adds(7, [3], b"new", flags=flags)) == Code.OK
    assert await entries(peer) == [3]
    [event] = home.heard("ledgers replaced")
    assert event.fields["ledgers"] == [7]
    assert (await peer.answer(read(7, -1))).entry == -1 and await peer.code(adds(7, [4], b"new")) == Code.OK
    assert await entries(peer) == [3, 4]


async def test_they_do_not_come_back_after_a_restart(old: None, home: Home, driver: Watched) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(7, [3], b"new")) == Code.OK
    creation = await creation_of(driver, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await entries(peer) == [3]
        assert bookie.storage.identities.identity(7) == LedgerIdentity(creation, False)


@pytest.mark.rule("P5")
@pytest.mark.parametrize("question", [read(7, -1), read(7, -1, KEY), read(7, 5, KEY), BATCH, *READS])
async def test_p5_a_question_to_a_new_ledger_is_not_answered_from_the_old_one(
    old: None, peer: Peer, question: bytes
) -> None:
    assert codes_of(await peer.ask(question)) in (Code.NO_LEDGER, Code.NO_ENTRY)
    assert await entries(peer) == []


@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize(
    "question",
    [
        adds(7, [10], b"new"), adds(7, [10], b"new", flags=v2.RequestFlag.HIGH_PRIORITY),
        adds(7, [10], b"new", flags=RECOVERY_ADD), read(7, -1), read(7, -1, KEY), read(7, 5, KEY), BATCH,
        *READS,
    ],
)  # fmt: skip
async def test_while_nobody_can_look_nothing_is_taken_or_said_of_a_ledger_that_may_be_another(
    old: None, bookie: Bookie, peer: Peer, driver: Watched, question: bytes, looks_first: bool
) -> None:
    """Entries beside those of the old ledger would be acknowledged, and go with them at the next look."""
    driver.fails = True
    if looks_first:
        assert await peer.code(adds(8, [1])) == Code.OK
        assert not bookie.looks.active
    assert codes_of(await peer.ask(question)) == Code.IO_ERROR
    peer.writer.write(adds(7, [3], b"new") + adds(8, [2]) + adds(7, [4], b"new"))
    assert await answers(peer, 3) == [(Code.OK, 8, 2), (Code.IO_ERROR, 7, 3), (Code.IO_ERROR, 7, 4)]
    assert await entries(peer) == [] and bookie.storage.last_entry(7) == 9
    driver.fails = False
    bookie.looks._look_again()
    assert await peer.code(adds(7, [2], b"new")) == Code.OK
    assert await entries(peer) == [2]


async def test_what_was_compared_once_is_served_while_nobody_can_look(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """Whoever reaches the port can send an entry 0, and make the bookie look again."""
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [0])) == Code.OK
    await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    driver.fails = True
    assert await peer.code(adds(7, [0])) == Code.OK
    assert not bookie.looks.active
    assert await peer.code(adds(7, [0])) == await peer.code(adds(7, [1])) == Code.OK
    assert await peer.code(read(7, -1)) == await peer.code(read(7, 1, KEY)) == await peer.code(read(7, 1)) == Code.OK


@pytest.mark.parametrize("question", READS)
async def test_the_first_read_of_a_ledger_after_a_start_brings_the_look(
    home: Home, driver: Watched, question: bytes
) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert {await peer.code(adds(7, [entry])) for entry in range(10)} == {Code.OK}
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    async with home.running() as bookie, talking(bookie) as peer:
        bookie.looks._metadata = driver
        assert codes_of(await peer.ask(question)) == Code.OK
        assert driver.looked_up == [(7,)]
        driver.fails = True
        assert await entries(peer) == [*range(10)], "the others need none"
        assert driver.looked_up == [(7,)]


async def test_a_collection_compares_the_ledgers_that_nobody_has_read_yet(home: Home, driver: Watched) -> None:
    """Then they are read while nobody can look, but for one whose id another ledger has."""
    for ledger in (7, 8):
        await driver.create_ledger(METADATA, ledger)
    async with home.running() as bookie, talking(bookie) as peer:
        for ledger in (7, 8):
            assert await peer.code(adds(ledger, [0])) == Code.OK
            await until(lambda: bookie.storage.identities.identity(ledger) != LedgerIdentity(UNKNOWN, False))  # noqa: B023
    await remade(driver, 8)
    async with home.running() as bookie, talking(bookie) as peer:
        bookie.looks._metadata = driver
        await bookie.collection.run()
        driver.fails = True
        assert (await peer.code(read(7, 0)), await peer.code(read(8, 0))) == (Code.OK, Code.IO_ERROR)
        driver.fails = False
        bookie.looks._look_again()
        assert await peer.code(read(8, 0)) == Code.NO_LEDGER


async def test_a_ledger_that_nobody_has_any_more_is_read_until_it_is_collected(home: Home, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(7, [0])) == Code.OK
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await driver.delete_ledger(7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(read(7, 0)) == Code.OK


async def test_a_new_ledger_that_is_fenced_here_takes_nothing(old: None, peer: Peer, driver: Watched) -> None:
    assert await peer.code(read(7, -1, KEY)) in (Code.NO_LEDGER, Code.NO_ENTRY)
    assert await peer.code(adds(7, [3], b"new")) == Code.FENCED
    assert await peer.code(adds(7, [3], b"new", flags=RECOVERY_ADD)) == Code.OK


async def test_a_fence_does_not_overtake_adds_that_wait(old: None, peer: Peer, bookie: Bookie, driver: Watched) -> None:
    """Else recovery would be told that there is nothing, and the writer afterwards that it is stored."""
    driver.gate.clear()
    peer.writer.write(adds(7, [3], b"new"))
    await until(lambda: driver.looked_up)
    async with talking(bookie) as recovery:
        recovery.writer.write(read(7, 3, KEY))
        peer.writer.write(adds(7, [4], b"new"))
        await until(lambda: len(bookie.looks._requests.get(7, [])) == 3)
        driver.gate.set()
        fenced = await recovery.frame()
        stored = [code for code, _, _ in await answers(peer, 2)]
    assert (codes_of(fenced) == Code.OK) == (stored[0] == Code.OK)


@pytest.mark.rule("Q11")
async def test_a_fence_that_comes_while_an_id_waits_to_change_hands_stays(
    bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look found the new ledger open; then a collection forgot the old one's deletion, and the fence was answered.
    The old one's turn to go wiped the fence out, and adds that had waited were acknowledged behind it."""
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [0], b"old")) == Code.OK
    await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await driver.delete_ledger(7)
    await bookie.upkeep.collect(lambda: [7], ())
    await driver.create_ledger(METADATA, 7)
    renew, judged, forgotten = bookie.upkeep.renew, asyncio.Event(), asyncio.Event()

    async def late(ledgers: Mapping[int, LedgerIdentity]) -> None:
        judged.set()
        await forgotten.wait()
        await renew(ledgers)

    monkeypatch.setattr(bookie.looks, "_renew", late)
    peer.writer.write(adds(7, [3], b"new"))
    await judged.wait()
    await bookie.upkeep.checkpoint()
    await bookie.upkeep.collect(list, [7])
    async with talking(bookie) as recovery:
        assert await recovery.code(read(7, 3, KEY)) == Code.NO_ENTRY
    forgotten.set()
    assert await answers(peer, 1) == [(Code.FENCED, 7, 3)]
    assert bookie.storage.is_fenced(7) and await entries(peer) == []


async def test_a_ledger_that_is_newer_than_its_metadata_is_neither_served_nor_deleted(
    home: Home, driver: Watched
) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(7, [0])) == Code.OK
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
        bookie.storage._ledgers.set_creation(7, bookie.storage._ledgers.alive[7].creation + 1000)
    async with home.running() as bookie, talking(bookie) as peer:
        for request in (adds(7, [1]), adds(7, [1], flags=RECOVERY_ADD), read(7, -1), read(7, 0, KEY), BATCH, *READS):
            assert codes_of(await peer.ask(request)) == Code.IO_ERROR
        assert bookie.counts.looks_amiss > 0 and home.heard("requests refused")
        assert bookie.storage.last_entry(7) == 0
        async with talking(bookie) as other:
            bookie.looks.active = False
            assert await other.code(read(7, -1)) == Code.IO_ERROR, "and nobody can look"


async def test_the_first_entry_of_a_new_ledger_makes_a_bookie_look_again(peer: Peer, driver: Watched) -> None:
    """It ran all the time, and an original client deleted the ledger and made it again."""
    await driver.create_ledger(METADATA, 7)
    assert {await peer.code(adds(7, [entry], b"old")) for entry in range(10)} == {Code.OK}
    await remade(driver, 7)
    peer.writer.write(adds(7, range(3), b"new"))
    assert await answers(peer, 3) == [(Code.OK, 7, entry) for entry in range(3)]
    assert await entries(peer) == [0, 1, 2]


async def test_an_id_that_is_remembered_as_deleted_is_taken_by_the_next_ledger_at_once(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [0], b"old")) == Code.OK
    await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await driver.delete_ledger(7)
    await bookie.upkeep.collect(lambda: [7], ())
    assert await peer.code(adds(7, [0], b"old")) == await peer.code(adds(7, [1], b"old")) == Code.FENCED
    await driver.create_ledger(METADATA, 7)
    peer.writer.write(adds(7, range(3), b"new"))
    assert await answers(peer, 3) == [(Code.OK, 7, entry) for entry in range(3)]


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("looks_first", [False, True])
@pytest.mark.parametrize(
    "question",
    [adds(7, [1]), adds(7, [1], flags=RECOVERY_ADD), read(7, -1), read(7, -1, KEY), read(7, 1, KEY), BATCH],
)
async def test_while_nobody_can_look_nothing_is_said_of_an_id_that_was_deleted_here(
    bookie: Bookie, peer: Peer, driver: Watched, question: bytes, looks_first: bool
) -> None:
    """A recovery that was told "no such ledger" took it for a fence, and the bookie forgot the deletion later."""
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [0])) == Code.OK
    await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await driver.delete_ledger(7)
    await bookie.upkeep.collect(lambda: [7], ())
    driver.fails = True
    if looks_first:
        assert await peer.code(adds(8, [1])) == Code.OK
        assert not bookie.looks.active
    assert codes_of(await peer.ask(question)) == Code.IO_ERROR
    assert await peer.code(read(7, 0)) == Code.NO_LEDGER, "of an entry it says what it has"
    driver.fails = False
    bookie.looks._look_again()
    expected = Code.FENCED if question == adds(7, [1]) else None
    answer = codes_of(await peer.ask(question))
    assert answer == expected or (expected is None and answer != Code.IO_ERROR)


@pytest.mark.rule("Q15")
async def test_of_the_same_ledger_that_comes_back_after_it_was_deleted_here_nothing_is_said(
    bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """Metadata was restored. A fence was answered "no such ledger", so a recovery took its entries, which other bookies
    may have, for ones that were never confirmed."""
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [0])) == Code.OK
    await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
    await bookie.upkeep.collect(lambda: [7], ())
    for question in (adds(7, [1]), adds(7, [1], flags=RECOVERY_ADD), read(7, -1), read(7, 0, KEY), BATCH):
        assert codes_of(await peer.ask(question)) == Code.IO_ERROR
    assert await peer.code(read(7, 0)) == Code.NO_LEDGER, "others have it, perhaps"


async def test_what_cannot_be_deleted_is_not_mixed(
    old: None, home: Home, bookie: Bookie, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(ledgers: object) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(bookie.looks, "_renew", full)
    assert await peer.code(adds(7, [3])) == await peer.code(read(7, -1)) == Code.IO_ERROR
    assert home.heard("ledgers not replaced")
    assert await entries(peer) == [] and bookie.storage.last_entry(7) == 9
    monkeypatch.undo()
    assert await peer.code(adds(7, [3])) == Code.OK


@pytest.mark.parametrize("runs", [False, True])
async def test_metadata_that_was_copied_node_by_node_costs_nothing(home: Home, driver: Watched, runs: bool) -> None:
    """All creations are new then, the cookie's, too; the bookie runs meanwhile, or starts on it."""
    await driver.create_ledger(METADATA, 7)

    async def copy() -> None:
        cookie = await driver.read_cookie("b0")
        assert cookie is not None
        await driver.delete_cookie("b0", cookie.version)
        await driver.write_cookie("b0", cookie.value, None)
        await remade(driver, 7)

    async with home.running() as bookie, talking(bookie) as peer:
        assert {await peer.code(adds(7, [entry], b"old")) for entry in range(10)} == {Code.OK}
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
        if runs:
            await copy()
            bookie.storage._ledgers.look_again()
            assert await peer.code(adds(7, [10])) == Code.OK and home.heard("metadata was copied")
            assert await entries(peer) == list(range(10))
    if not runs:
        await copy()
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(read(7, -1)) == await peer.code(adds(7, [11])) == Code.OK
        assert await entries(peer) == list(range(10))
        assert not home.heard("ledgers replaced") and bookie.counts.ledgers_ahead == 0


@pytest.mark.parametrize("reached", [False, True])
async def test_while_nobody_can_say_whether_metadata_was_copied_an_old_ledger_is_kept(
    old: None, bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    async def no_cookie(bookie: str) -> None:
        if not reached:
            raise MetadataUnavailable("the service went away")

    monkeypatch.setattr(driver, "bookie_creation", no_cookie)
    assert await peer.code(adds(7, [3], b"new")) == Code.IO_ERROR
    assert await entries(peer) == [] and bookie.storage.last_entry(7) == 9
    monkeypatch.undo()
    assert await peer.code(adds(7, [3], b"new")) == Code.OK
    assert await entries(peer) == [3]


async def test_a_new_bookie_that_is_killed_knows_its_ledgers_again(home: Home, driver: Watched) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        assert {await peer.code(adds(7, [entry], b"old")) for entry in range(10)} == {Code.OK}
        await until(lambda: bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False))
        await until(lambda: bookie.committer.idle.is_set() and not bookie.storage.staged)
        bookie.failure.set_result(StorageError("a crash"))  # no checkpoint at the stop
    async with home.running() as bookie:
        assert bookie.storage.replay_stats.entries == 10
        assert bookie.storage.identities.identity(7) == LedgerIdentity(await creation_of(driver, 7), False)


async def test_an_id_that_restored_metadata_gives_out_again_costs_the_first_ledger_nothing(
    old: None, home: Home, bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new ledger's creation is the later one, as that of a ledger that was made after the first was deleted."""
    lost = finished(bookie.storage.identities.creations())

    async def never_made(creations: Sequence[int]) -> set[int]:
        return {creation for _, creation in lost} & set(creations)

    monkeypatch.setattr(driver, "never_made", never_made)
    for question in (adds(7, [0], b"new"), adds(7, [3], b"new"), read(7, -1, KEY)):
        assert codes_of(await peer.ask(question)) == Code.IO_ERROR
    assert await entries(peer) == [] and bookie.storage.last_entry(7) == 9
    assert not home.heard("ledgers replaced") and home.heard("requests refused")


@pytest.mark.parametrize("how", ["replaced", "another cluster's", "away"])
async def test_metadata_that_is_not_what_it_was_gives_nobody_an_id_of_a_ledger_that_is_here(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    await driver.create_ledger(METADATA, 7)
    assert {await peer.code(adds(7, [entry], b"old")) for entry in range(10)} == {Code.OK}
    await until(lambda: not bookie.storage.identities.needs_look(7, 10, KEY))
    sync = driver.sync

    async def other() -> Moment:
        if how == "another cluster's":
            return replace(await sync(), instance="theirs")
        raise MetadataUnavailable("it is away") if how == "away" else MetadataError("the file was replaced")

    monkeypatch.setattr(driver, "sync", other)
    codes = [await peer.code(adds(7, [entry], b"new")) for entry in (0, 1, 0)]
    expected = Code.OK if how == "away" else Code.IO_ERROR
    assert codes == [expected] * 3
    assert len(home.heard("ledgers not looked at")) == 1
    monkeypatch.undo()
    bookie.looks._look_again()
    assert await peer.code(adds(7, [10], b"old")) == Code.OK, "the right metadata is back"
