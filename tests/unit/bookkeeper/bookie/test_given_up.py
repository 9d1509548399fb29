"""Ledgers that an operator gave up as newer than the metadata: nothing is said of them on the day they come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.bookies import KEY, Home, Peer, adds, read, talking
from support.waiting import until
from support.watched import METADATA, Watched
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.given_up import GivenUpLedgers
from tallystick.bookkeeper.bookie.ledgers import Ledgers
from tallystick.bookkeeper.bookie.look import Judgement, Verdict, judge
from tallystick.bookkeeper.bookie.state import UNKNOWN, DeletedLedger, LedgerIdentity, State
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Record
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.codec.steps import finished

pytestmark = pytest.mark.rule("Q15")

RECOVERY = [adds(7, [0], flags=RequestFlag.RECOVERY_ADD), read(7, -1), read(7, -1, KEY), read(7, 0, KEY)]
QUESTIONS = [adds(7, [0]), adds(7, [3]), *RECOVERY]


@pytest.fixture
def looks() -> bool:
    return True


class Back(ClusterMetadata):
    """Newer metadata, in which ledger 7 is the one with this creation."""

    def __init__(self, cluster: str, creation: int) -> None:
        super().__init__(MemoryStore(cluster))
        self._creation = creation

    async def look_up(self, ledgers: Sequence[int]) -> Mapping[int, Record | None]:
        found = await super().look_up(ledgers)
        return {ledger: record and replace(record, creation=self._creation) for ledger, record in found.items()}


def look_in(bookie: Bookie, driver: ClusterMetadata) -> None:
    looks: Any = bookie.looks
    looks._metadata = bookie.collection._driver = driver
    looks._ledgers.look_again()


async def made(driver: Watched, bookie: Bookie, peer: Peer, *, later: int = 0) -> int:
    """Ledger 7, with entries here; its creation, so much later than the metadata's newest."""
    await driver.create_ledger(METADATA, 7)
    assert {await peer.code(adds(7, [entry])) for entry in range(3)} == {Code.OK}
    await until(lambda: not bookie.storage.identities.needs_look(7, 3, KEY))
    creation = bookie.storage._ledgers.alive[7].creation + later
    bookie.storage._ledgers.set_creation(7, creation)
    return creation


async def give_up(driver: Watched, bookie: Bookie) -> None:
    """The metadata lacks ledger 7, which is newer; an operator says so."""
    await driver.delete_ledger(7)
    finished(bookie.storage.identities.set_ahead([7]))
    await bookie.upkeep.collect(lambda: [7], ())
    finished(bookie.storage.identities.set_ahead([]))


async def answers(peer: Peer, questions: Sequence[bytes] = QUESTIONS) -> set[Code]:
    return {await peer.code(question) for question in questions}


@pytest.mark.parametrize("later", [0, 1000])  # the one that has the id next has the later creation, or the earlier one
async def test_another_bookies_ledger_of_that_id_makes_it_not_forget_which_one_was_given_up(
    home: Home, driver: Watched, later: int
) -> None:
    """The next collection forgot it, and recovery took a "no such ledger" for a proof: it closed the ledger that came
    back before entries that other bookies have."""
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, driver)
        creation = await made(driver, bookie, peer, later=later)
        await give_up(driver, bookie)
        assert bookie.storage.identities.identity(7) == LedgerIdentity(creation, True, True)
        await driver.create_ledger(METADATA, 7)
        await bookie.upkeep.checkpoint()
        await bookie.collection.run()
        assert bookie.storage.identities.identity(7) is None
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, Back(home.cluster, creation))
        assert await answers(peer) == {Code.IO_ERROR}
        await bookie.collection.run()
        assert await answers(peer) == {Code.IO_ERROR}
        bookie.looks.active = False
        assert await answers(peer) == {Code.IO_ERROR}, "and when nobody can look"


async def test_all_ledgers_of_an_id_that_were_given_up_are_known(home: Home, driver: Watched) -> None:
    """The last one was: the newer metadata was put back, and what was written meanwhile was given up as well."""
    creations = list[int]()
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, driver)
        for _ in range(3):
            creations.append(await made(driver, bookie, peer))
            await give_up(driver, bookie)
        await driver.create_ledger(METADATA, 7)
    for creation in creations:
        async with home.running() as bookie, talking(bookie) as peer:
            look_in(bookie, Back(home.cluster, creation))
            assert await answers(peer) == {Code.IO_ERROR}
            await bookie.collection.run()
            assert bookie.storage.identities.identity(7) == LedgerIdentity(creations[-1], True, True), (
                "it is nobody else's id"
            )
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, Back(home.cluster, max(creations) + 1))
        assert await answers(peer, QUESTIONS[:2]) == {Code.OK}, "another one's id"


async def test_what_is_written_to_the_next_ledger_is_not_taken_for_the_one_that_was_given_up(
    home: Home, driver: Watched
) -> None:
    """A crash came before its creation was durable, and the ledger that was given up is in the metadata again."""
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, driver)
        creation = await made(driver, bookie, peer)
        await give_up(driver, bookie)
        await driver.create_ledger(METADATA, 7)
        assert await peer.code(adds(7, [0])) == Code.OK
        bookie.storage._ledgers.set_creation(7, UNKNOWN)
    async with home.running() as bookie, talking(bookie) as peer:
        look_in(bookie, Back(home.cluster, creation))
        await bookie.collection.run()
        assert bookie.storage.identities.identity(7) == LedgerIdentity(UNKNOWN, False)
        assert await answers(peer) == {Code.IO_ERROR}
        bookie.looks.active = False
        assert await answers(peer) == {Code.IO_ERROR}


async def test_an_id_of_which_one_was_given_up_can_be_used_though_the_metadata_never_made_that_one(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    creation = await made(driver, bookie, peer)
    await give_up(driver, bookie)

    async def never_made(creations: Sequence[int]) -> set[int]:
        return {creation} & set(creations)

    monkeypatch.setattr(driver, "never_made", never_made)
    await driver.create_ledger(METADATA, 7)
    assert await peer.code(adds(7, [3])) == Code.OK
    assert bookie.storage.identities.given_up(7) == (creation,)


async def test_an_id_whose_ledger_goes_while_it_is_listed_is_remembered_no_longer_for_that(
    home: Home, bookie: Bookie, peer: Peer, driver: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listing() -> AsyncIterator[int]:
        yield 7

    await made(driver, bookie, peer)
    await driver.delete_ledger(7)
    await bookie.upkeep.collect(lambda: [7], ())
    deleted = bookie.storage._ledgers.deleted
    deleted[7] = before = deleted[7]._replace(accessed_ms=deleted[7].accessed_ms - 1000)
    look_in(bookie, driver)
    monkeypatch.setattr(driver, "ledgers", listing)
    await bookie.collection.run()
    assert deleted[7] == before


async def test_of_more_than_are_remembered_those_are_forgotten_that_were_given_up_first(home: Home) -> None:
    home.storage = replace(home.storage, given_up_memory_ledgers=3)
    async with home.running() as bookie:
        ledgers = bookie.storage._ledgers
        for ledger, creation in ((1, 10), (2, 20), (1, 11), (3, 30)):
            ledgers.create(ledger, KEY).creation = creation
            finished(bookie.storage.identities.set_ahead([ledger]))
            await bookie.upkeep.collect([ledger].copy, ())
            await bookie.upkeep.collect(list, [ledger])
            assert ledger not in ledgers.deleted
    async with home.running() as bookie:
        assert [bookie.storage.identities.given_up(ledger) for ledger in (1, 2, 3)] == [(10, 11), (), (30,)]


# -- without a bookie -------------------------------------------------------------------------------------------------


def test_the_same_one_counts_once() -> None:
    given_up = GivenUpLedgers({1: (10,), 2: (20,)})
    given_up.add(1, 10)
    finished(given_up.bound(2))
    assert given_up.copy() == {1: (10,), 2: (20,)} and 1 in given_up and 3 not in given_up
    assert list(given_up.copy()) == [2, 1], "it is the newest one now"
    finished(given_up.bound(1))
    assert given_up.copy() == {1: (10,)}


def test_all_that_were_given_up_of_an_id_count_and_go_together() -> None:
    given_up = GivenUpLedgers({1: (10, 11), 2: (20,)})
    given_up.add(3, 30)
    finished(given_up.bound(4))
    assert list(given_up.copy()) == [1, 2, 3]
    finished(given_up.bound(3))
    assert list(given_up.copy()) == [2, 3], "with the first one room is made for two"
    given_up.add(2, 21)
    finished(given_up.bound(2))
    assert given_up.copy() == {2: (20, 21)}


def test_a_state_of_before_says_it_of_deleted_ledgers_alone() -> None:
    ledgers = Ledgers(State(deleted={7: DeletedLedger(9, 99, was_ahead=True), 8: DeletedLedger(9, 5)}))
    assert (ledgers.given_up.of(7), ledgers.given_up.of(8)) == ((99,), ())
    finished(ledgers.forget_deleted([7]))
    assert ledgers.identity(7) is None and ledgers.given_up.of(7) == (99,)


def test_creations_of_metadata_that_was_copied_say_nothing() -> None:
    ledgers = Ledgers(State(given_up={7: (99,)}, anchor=1))
    assert (
        finished(ledgers.anchored(1))
        and ledgers.needs_look(7, 0, KEY)
        and ledgers.needs_comparison(7)
        and ledgers.is_in_doubt(7)
    )
    assert not finished(ledgers.anchored(2))
    assert ledgers.given_up.copy() == {} and not ledgers.needs_look(7, 0, KEY)


def test_a_ledger_that_was_given_up_and_that_of_its_id() -> None:
    ledgers = Ledgers(State(given_up={7: (99, 5)}))
    for creation, said in ((99, Verdict.AMISS), (5, Verdict.AMISS), (6, Verdict.ADMIT)):
        record = Record(LedgerState.OPEN, creation)
        assert judge(record, ledgers.identity(7), ledgers.given_up.of(7)) == Judgement(said, creation)
    assert judge(None, None, (99,)) == Judgement(Verdict.GONE)
    found = ledgers.create(7, master_key(b"pw"))
    assert ledgers.needs_comparison(7) and ledgers.is_in_doubt(7), "whose entries?"
    found.is_compared = found.was_compared = True
    assert not ledgers.needs_comparison(7) and not ledgers.is_in_doubt(7)
