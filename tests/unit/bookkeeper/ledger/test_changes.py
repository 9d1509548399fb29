"""Changes to a ledger's metadata: what another client stored first decides whether one is still made."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Collection

import pytest

from support.small_cluster import SmallCluster
from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.memory import MemoryDriver
from tallystick.bookkeeper.wire.values import Ensemble, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import LedgerFenced, RecoveryIncomplete

_names = itertools.count()
OPEN = LedgerMetadata(3, 3, 2, (Fragment(0, ("a", "b", "c")),))
IN_RECOVERY = OPEN.in_recovery()
CLOSED = IN_RECOVERY.closed(9, 90)


@pytest.fixture
async def driver() -> AsyncIterator[MemoryDriver]:
    driver = MemoryDriver(f"changes-{next(_names)}")
    await driver.init_cluster()
    yield driver
    await driver.close()


async def stored(driver: MemoryDriver, *states: LedgerMetadata) -> tuple[int, changes.Stored]:
    """A ledger whose metadata went through ``states``; its id, and what a client knows that saw the first of them."""
    created = await driver.create_ledger(states[0])
    version = created.version
    for metadata in states[1:]:
        version = await driver.write_ledger(created.value, metadata, version)
    return created.value, Versioned(states[0], created.version)


async def d_for_failed(failed: Collection[str], ensemble: Ensemble) -> Ensemble:
    return tuple("d" if bookie in failed else bookie for bookie in ensemble)


@pytest.mark.rule("P2", "Q8", "Q11")
@pytest.mark.parametrize(
    "states", [(OPEN, IN_RECOVERY), (OPEN, IN_RECOVERY, CLOSED), (IN_RECOVERY,), (CLOSED,)], ids=str
)
async def test_p2_no_ensemble_changes_once_another_client_recovers_the_ledger(
    driver: MemoryDriver, states: tuple[LedgerMetadata, ...]
) -> None:
    """Else the writer goes on at bookies that nobody has fenced: an entry is acknowledged behind the end."""
    ledger, known = await stored(driver, *states)
    with pytest.raises(LedgerFenced):
        await changes.change_ensemble(driver, ledger, known, ["c"], 10, d_for_failed)
    assert (await driver.read_ledger(ledger)).value == states[-1]


@pytest.mark.rule("Q8")
async def test_q8_a_change_is_made_on_what_is_stored_now(driver: MemoryDriver) -> None:
    moved = LedgerMetadata(3, 3, 2, (Fragment(0, ("x", "b", "c")), Fragment(5, ("a", "b", "c"))))
    ledger, known = await stored(driver, OPEN, moved)
    changed = await changes.change_ensemble(driver, ledger, known, ["c"], 7, d_for_failed)
    assert changed.value.fragments == (*moved.fragments, Fragment(7, ("a", "b", "d")))
    again = await changes.change_ensemble(driver, ledger, known, ["c"], 7, d_for_failed)
    assert again == await driver.read_ledger(ledger), "nothing is left to replace"


@pytest.mark.rule("P3")
@pytest.mark.parametrize("states", [(OPEN, IN_RECOVERY), (OPEN, IN_RECOVERY, CLOSED), (IN_RECOVERY,)], ids=str)
async def test_p3_a_writer_closes_no_ledger_that_another_client_recovers(
    driver: MemoryDriver, states: tuple[LedgerMetadata, ...]
) -> None:
    ledger, known = await stored(driver, *states)
    with pytest.raises(LedgerFenced):
        await changes.close_written(driver, ledger, known, 7, 70)
    assert (await driver.read_ledger(ledger)).value == states[-1]


@pytest.mark.rule("P3")
async def test_p3_an_end_that_is_the_writers_own_is_a_success(driver: MemoryDriver) -> None:
    ledger, known = await stored(driver, OPEN, IN_RECOVERY, CLOSED)
    assert (await changes.close_written(driver, ledger, known, 9, 90)).value == CLOSED


@pytest.mark.rule("P3", "Q13")
async def test_p3_recovery_never_opens_a_closed_ledger_again(driver: MemoryDriver) -> None:
    ledger, known = await stored(driver, OPEN, IN_RECOVERY, CLOSED)
    assert (await changes.begin_recovery(driver, ledger, known)).value == CLOSED
    assert (await driver.read_ledger(ledger)).value == CLOSED


@pytest.mark.rule("P3", "Q16")
async def test_q16_who_closes_first_wins_and_the_other_takes_that_end(driver: MemoryDriver) -> None:
    ledger, known = await stored(driver, IN_RECOVERY, CLOSED)
    own = (Fragment(3, ("a", "b", "d")),)
    assert (await changes.close_recovered(driver, ledger, known, 4, 40, own)).value == CLOSED


@pytest.mark.rule("Q16")
@pytest.mark.parametrize("now", [OPEN, IN_RECOVERY.with_fragment(4, ("a", "b", "d"))], ids=str)
async def test_q16_an_end_found_in_another_ensemble_is_not_stored(driver: MemoryDriver, now: LedgerMetadata) -> None:
    ledger, known = await stored(driver, IN_RECOVERY, now)
    with pytest.raises(RecoveryIncomplete):
        await changes.close_recovered(driver, ledger, known, 4, 40, ())
    assert (await driver.read_ledger(ledger)).value == now


@pytest.mark.rule("P2")
async def test_p2_a_writer_that_was_cut_off_acknowledges_nothing_behind_the_end() -> None:
    """Recovery fenced and closed its ensemble while the writer was away from those bookies, with others at hand."""
    cluster = await SmallCluster().start(6)
    try:
        writer = await cluster.client().create_ledger(3, 3, 2)
        await writer.append(b"0")
        old = [cluster.bookies[name] for name in writer.metadata.ensemble]
        reader = await cluster.client(2).open_ledger(writer.id, recover=True)
        assert reader.last_entry == 0
        for bookie in old:  # the writer hears nothing of the fence
            await cluster.down(bookie.id)
        with pytest.raises(LedgerFenced):
            await writer.append(b"behind the end")
        found = (await cluster.driver.read_ledger(writer.id)).value
        assert (found.state, found.last_entry, len(found.fragments)) == (LedgerState.CLOSED, 0, 1)
    finally:
        await cluster.close()
