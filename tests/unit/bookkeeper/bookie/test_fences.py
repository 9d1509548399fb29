"""Which ledgers a bookie fences of which it stores nothing: those that may exist, and not too many at a time."""

from __future__ import annotations

from typing import Any

import pytest

from support.bookies import KEY, OTHER_KEY, Home, adds, read, talking
from support.waiting import until
from support.watched import METADATA, Watched
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.looks import HELD_LEDGERS
from tallystick.bookkeeper.bookie.state import UNKNOWN, LedgerIdentity
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.v2 import RequestFlag
from tallystick.codec.steps import finished

MOST = 3
INVENTED = range(1000, 1000 + MOST)
UNKNOWN_HERE = 99_999


@pytest.fixture
def looks() -> bool:
    return True


def batch(ledger: int) -> bytes:
    return v2.BatchReadFrame(ledger, 0, 1, 10, 1 << 16, KEY, RequestFlag.FENCE).encode()


async def fence(bookie: Bookie, *ledgers: int) -> list[int]:
    """The codes of fencing reads of entry 0."""
    async with talking(bookie) as peer:
        return [await peer.code(read(ledger, 0, KEY)) for ledger in ledgers]


async def add(bookie: Bookie, ledger: int, entry: int = 0, flags: int = 0) -> int:
    async with talking(bookie) as peer:
        return await peer.code(adds(ledger, [entry], flags=flags))


async def full(bookie: Bookie) -> None:
    assert await fence(bookie, *INVENTED) == [Code.NO_ENTRY] * MOST


@pytest.fixture
async def bookie(home: Home, driver: Watched) -> Any:
    async with home.running(max_fences_without_entries=MOST) as made:
        made.looks._metadata = driver
        core: Any = made.collection._core
        core._rules = type(core._rules)(0.0)
        yield made


async def collect(bookie: Bookie) -> int:
    return await bookie.collection.run()


# -- the bound --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("Q11", "Q15")
@pytest.mark.parametrize("question", [read(UNKNOWN_HERE, 0, KEY), read(UNKNOWN_HERE, -1, KEY), batch(UNKNOWN_HERE)])
async def test_q15_one_invented_ledger_too_many_is_refused_and_not_by_a_no(
    home: Home, bookie: Bookie, driver: Watched, question: bytes
) -> None:
    await full(bookie)
    assert not driver.looked_up, "below the bound nobody looks"
    async with talking(bookie) as peer:
        for _ in range(2):
            frame = await peer.ask(question)
            answer = v2.decode_response((frame or b"")[4:])
            assert isinstance(answer, v2.Response | v2.BatchReadResponse)
            assert answer.code == Code.TOO_MANY_REQUESTS and answer.code not in NO_CODES
    assert bookie.storage.identities.identity(UNKNOWN_HERE) is None
    assert bookie.storage.stats().fences_without_entries == MOST
    assert bookie.counts.fences_refused == 2
    [event] = home.heard("fences refused")
    assert event.fields["count"] == MOST
    assert not home.heard("adds refused"), "nobody added"


async def test_a_ledger_with_entries_here_and_one_that_is_fenced_are_fenced_beyond_the_bound(bookie: Bookie) -> None:
    assert await add(bookie, 7) == Code.OK
    await full(bookie)
    assert await fence(bookie, 7, INVENTED[0]) == [Code.OK, Code.NO_ENTRY]
    assert await add(bookie, 7, 1) == await add(bookie, INVENTED[0]) == Code.FENCED
    assert bookie.counts.fences_refused == 0


@pytest.mark.rule("Q11", "Q12")
async def test_a_ledger_that_the_metadata_has_is_fenced_beyond_the_bound(bookie: Bookie, driver: Watched) -> None:
    await full(bookie)
    await driver.create_ledger(METADATA, 7)
    assert await fence(bookie, 7) == [Code.NO_ENTRY]
    assert await add(bookie, 7) == await add(bookie, 7, 1) == Code.FENCED
    assert bookie.storage.identities.identity(7) != LedgerIdentity(UNKNOWN, False), "and it is known which one it is"
    async with talking(bookie) as peer:
        assert await peer.code(read(7, 0, OTHER_KEY)) == Code.UNAUTHORIZED
    assert bookie.counts.fences_refused == 0


@pytest.mark.parametrize("paused", [False, True])
async def test_while_nobody_can_look_an_unknown_ledger_is_refused_and_others_are_not(
    bookie: Bookie, driver: Watched, paused: bool
) -> None:
    assert await add(bookie, 8) == Code.OK
    await full(bookie)
    await driver.create_ledger(METADATA, 7)
    driver.fails, bookie.looks.active = True, not paused
    assert await fence(bookie, 7, 8, INVENTED[0]) == [Code.TOO_MANY_REQUESTS, Code.OK, Code.NO_ENTRY]
    driver.fails, bookie.looks.active = False, True
    assert await fence(bookie, 7) == [Code.NO_ENTRY]


async def test_fences_do_not_queue_without_bound_before_the_looks_of_writers(bookie: Bookie, driver: Watched) -> None:
    await full(bookie)
    driver.gate.clear()
    for ledger in range(HELD_LEDGERS):
        bookie.looks.hold(ledger, 0, lambda said: None, adds=False)
    assert await fence(bookie, UNKNOWN_HERE) == [Code.TOO_MANY_REQUESTS]
    driver.gate.set()
    await until(lambda: not bookie.looks._requests)
    assert UNKNOWN_HERE not in {ledger for looked in driver.looked_up for ledger in looked}


# -- what is kept, and what is freed ----------------------------------------------------------------------------------


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("in_order", [False, True])
async def test_q11_a_fence_that_came_before_the_first_entry_survives_restarts_and_counts(
    home: Home, driver: Watched, in_order: bool
) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie:
        assert await fence(bookie, 7, *INVENTED) == [Code.NO_ENTRY] * (MOST + 1)
        if not in_order:
            bookie.failure.set_result(OSError("the disk died"))
    async with home.running(max_fences_without_entries=MOST) as bookie:
        assert bool(bookie.storage.replay_stats.commits) is not in_order
        assert bookie.storage.fences_without_entries == MOST + 1, "the bound forgets no fence"
        assert await add(bookie, 7) == Code.FENCED
        assert await add(bookie, 7, flags=RequestFlag.RECOVERY_ADD) == Code.OK
        assert bookie.storage.fences_without_entries == MOST
        assert await fence(bookie, UNKNOWN_HERE) == [Code.TOO_MANY_REQUESTS]
    async with home.running() as bookie:
        assert bookie.storage.fences_without_entries == MOST
        assert await fence(bookie, UNKNOWN_HERE) == [Code.NO_ENTRY]


@pytest.mark.rule("Q12")
async def test_a_collection_frees_the_fences_of_ledgers_that_the_metadata_lacks_and_no_other(
    home: Home, bookie: Bookie, driver: Watched
) -> None:
    await full(bookie)
    await driver.create_ledger(METADATA, 7)
    assert await fence(bookie, 7, UNKNOWN_HERE) == [Code.NO_ENTRY, Code.TOO_MANY_REQUESTS]
    assert await collect(bookie) == MOST
    assert bookie.storage.ledger_ids() == [7] and bookie.storage.fences_without_entries == 1
    assert await add(bookie, 7) == Code.FENCED
    assert await add(bookie, INVENTED[0]) == Code.FENCED, "remembered as deleted: its writer cannot begin"
    assert await fence(bookie, *INVENTED) == [Code.NO_LEDGER] * MOST and bookie.storage.ledger_ids() == [7]
    assert await fence(bookie, *range(3000, 3002), UNKNOWN_HERE) == [*[Code.NO_ENTRY] * 2, Code.TOO_MANY_REQUESTS]
    assert len(home.heard("fences refused")) == 2, "told again when it is full again"


async def test_very_many_of_them_wait_for_nobody(home: Home, bookie: Bookie, driver: Watched) -> None:
    many = range(1000, 1200)
    bookie._service._fences._most = 1000
    await driver.create_ledger(METADATA, 7)
    assert await add(bookie, 7) == Code.OK
    assert set(await fence(bookie, *many)) == {Code.NO_ENTRY}
    assert await collect(bookie) == len(many)
    assert not home.heard("deletions wait")
    assert bookie.storage.ledger_ids() == [7]


async def test_metadata_that_was_gone_for_a_moment_frees_no_fence(home: Home, bookie: Bookie) -> None:
    class Fickle(Watched):
        async def look_up(self, ledgers: Any) -> Any:
            found = await super().look_up(ledgers)
            if len(self.looked_up) == 1:
                await self.create_ledger(METADATA, 7)
            return found

    assert await fence(bookie, 7) == [Code.NO_ENTRY]
    bookie.collection._driver = Fickle(home.cluster)
    assert await collect(bookie) == 0
    assert await add(bookie, 7) == Code.FENCED


@pytest.mark.rule("Q12")
async def test_a_ledger_that_is_fenced_after_the_last_look_at_its_id_stays_fenced(home: Home, bookie: Bookie) -> None:
    """It was made meanwhile, and its recovery was told that there is nothing."""

    class Creating(Watched):
        async def look_up(self, ledgers: Any) -> Any:
            found = await super().look_up(ledgers)
            if len(self.looked_up) == 2:
                await self.create_ledger(METADATA, 7)
                assert await fence(bookie, 7) == [Code.NO_ENTRY]
            return found

    assert await fence(bookie, 7) == [Code.NO_ENTRY]
    bookie.collection._driver = Creating(home.cluster)
    assert await collect(bookie) == 0
    assert await add(bookie, 7) == Code.FENCED


@pytest.mark.rule("Q15")
async def test_that_entries_were_deleted_is_not_forgotten_when_their_ledger_is_listed_again(
    bookie: Bookie, driver: Watched
) -> None:
    """Metadata was restored: a fence of the unknown ledger would tell a recovery that there were none."""
    for ledger in (1, 2):
        await driver.create_ledger(METADATA, ledger)
        assert await add(bookie, ledger) == Code.OK
    await until(lambda: all(creation != UNKNOWN for _, creation in finished(bookie.storage.identities.creations())))
    bookie.storage._ledgers.set_creation(
        2, finished(bookie.storage.identities.creations())[1][1] + 1000
    )  # an older one is listed
    await bookie.upkeep.collect(lambda: [1, 2], ())
    deleted = bookie.storage._ledgers.deleted
    deleted[1] = deleted[1]._replace(accessed_ms=0)
    for _ in range(2):
        await bookie.collection.run()
    assert await fence(bookie, 1, 2) == [Code.IO_ERROR] * 2
