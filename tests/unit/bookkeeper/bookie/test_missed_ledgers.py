"""Ledgers that lack in the metadata: which of them are missed, and which nobody made."""

from __future__ import annotations

import pytest

from support.bookies import Home, Peer, adds, talking
from support.waiting import until
from support.watched import METADATA, Watched
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import StorageError


@pytest.fixture
def looks() -> bool:
    return True


async def test_a_bookie_that_is_killed_knows_which_ledgers_nobody_made(home: Home) -> None:
    """After a crash each deletion waited for a day beside some hundred of them."""
    async with home.running() as bookie, talking(bookie) as peer:
        assert [await peer.code(adds(ledger, [0])) for ledger in (7, 8, 9)] == [Code.OK] * 3
        await until(lambda: not any(map(bookie.storage.identities.is_missed, (7, 8, 9))))
        bookie.looks.active = False
        assert await peer.code(adds(8, [1])) == Code.OK
        bookie.failure.set_result(StorageError("a crash"))  # no checkpoint at the stop
    async with home.running() as bookie:
        assert bookie.storage.replay_stats.entries == 4
        assert [bookie.storage.identities.is_missed(each) for each in (7, 8, 9)] == [False, True, False]


async def test_a_ledger_that_was_in_no_metadata_when_it_came_is_not_missed_when_it_lacks(
    home: Home, driver: Watched
) -> None:
    await driver.create_ledger(METADATA, 7)
    async with home.running() as bookie, talking(bookie) as peer:
        for ledger in (7, 8, 9):
            assert await peer.code(adds(ledger, [0])) == Code.OK
        await until(lambda: not bookie.storage.identities.is_missed(8) and not bookie.storage.identities.is_missed(9))
        assert bookie.storage.identities.is_missed(7)
        await driver.create_ledger(METADATA, 9)
        assert await peer.code(adds(9, [1])) == Code.OK, "whoever invented the id, it is a ledger now"
        assert bookie.storage.identities.is_missed(9)
    await driver.delete_ledger(9)
    async with home.running() as bookie:
        assert [bookie.storage.identities.is_missed(each) for each in (7, 8, 9)] == [True, False, True]


async def test_what_came_before_a_look_failed_is_missed_whatever_a_later_look_says(
    bookie: Bookie, peer: Peer, driver: Watched
) -> None:
    """The metadata may have been restored from an older copy by then."""
    driver.fails = True
    assert await peer.code(adds(7, [0])) == Code.OK
    await until(lambda: not bookie.looks.active)
    driver.fails = False
    bookie.looks._look_again()
    assert await peer.code(adds(7, [1])) == Code.FENCED
    assert bookie.storage.identities.is_missed(7)


async def test_and_so_is_what_came_while_nobody_looked(bookie: Bookie, peer: Peer, driver: Watched) -> None:
    driver.fails = True
    assert await peer.code(adds(7, [0])) == Code.OK
    await until(lambda: not bookie.looks.active)
    assert await peer.code(adds(8, [0])) == Code.OK
    driver.fails = False
    bookie.looks._look_again()
    assert await peer.code(adds(8, [1])) == Code.FENCED
    assert bookie.storage.identities.is_missed(8)


async def test_and_so_is_what_an_earlier_life_of_the_bookie_took(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        bookie.looks.active = False
        assert await peer.code(adds(7, [0])) == Code.OK
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(7, [1])) == Code.FENCED
        assert bookie.storage.identities.is_missed(7)


async def test_an_add_that_nobody_looked_behind_may_be_of_a_ledger_that_was_made_since(
    home: Home, driver: Watched
) -> None:
    async with home.running() as bookie, talking(bookie) as peer:
        assert await peer.code(adds(7, [0])) == Code.OK
        await until(lambda: not bookie.storage.identities.is_missed(7))
        bookie.looks.active = False
        assert await peer.code(adds(7, [1])) == Code.OK
        assert bookie.storage.identities.is_missed(7)
