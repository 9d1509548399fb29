"""Changes to a ledger's metadata: what another client stored first decides whether one is still made."""

from __future__ import annotations

import copy
import itertools
from collections.abc import AsyncIterator, Collection

import pytest

from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import changes
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import Versioned
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.values import Ensemble, Fragment, LedgerMetadata, LedgerState
from tallystick.errors import (
    LedgerFenced,
    MetadataUnavailable,
    MetadataUncertain,
    NotEnoughBookies,
    RecoveryIncomplete,
)

_names = itertools.count()
OPEN = LedgerMetadata(3, 3, 2, (Fragment(0, ("a", "b", "c")),))
IN_RECOVERY = OPEN.in_recovery()
CLOSED = IN_RECOVERY.closed(9, 90)


@pytest.fixture
async def driver() -> AsyncIterator[ClusterMetadata]:
    driver = ClusterMetadata(MemoryStore(f"changes-{next(_names)}"))
    await driver.init_cluster()
    yield driver
    await driver.close()


async def stored(driver: ClusterMetadata, *states: LedgerMetadata) -> tuple[int, changes.VersionedMetadata]:
    """A ledger whose metadata went through ``states``; its id, and what a client knows that saw the first of them."""
    created = await driver.create_ledger(states[0])
    version = created.version
    for metadata in states[1:]:
        version = await driver.write_ledger(created.value, metadata, version)
    return created.value, Versioned(states[0], created.version)


async def d_for_failed(failed: Collection[str], stored: LedgerMetadata) -> Ensemble:
    return tuple("d" if bookie in failed else bookie for bookie in stored.ensemble)


@pytest.mark.rule("P2", "Q8", "Q11")
@pytest.mark.parametrize(
    "states", [(OPEN, IN_RECOVERY), (OPEN, IN_RECOVERY, CLOSED), (IN_RECOVERY,), (CLOSED,)], ids=str
)
async def test_p2_no_ensemble_changes_once_another_client_recovers_the_ledger(
    driver: ClusterMetadata, states: tuple[LedgerMetadata, ...]
) -> None:
    """Else the writer goes on at bookies that nobody has fenced: an entry is acknowledged behind the end."""
    ledger, versioned = await stored(driver, *states)
    with pytest.raises(LedgerFenced):
        await changes.change_ensemble(driver, ledger, versioned, ["c"], 10, d_for_failed)
    assert (await driver.read_ledger(ledger)).value == states[-1]


@pytest.mark.rule("Q8")
async def test_q8_a_change_is_made_on_what_is_stored_now(driver: ClusterMetadata) -> None:
    moved = LedgerMetadata(3, 3, 2, (Fragment(0, ("x", "b", "c")), Fragment(5, ("a", "b", "c"))))
    ledger, versioned = await stored(driver, OPEN, moved)
    changed = await changes.change_ensemble(driver, ledger, versioned, ["c"], 7, d_for_failed)
    assert changed.value.fragments == (*moved.fragments, Fragment(7, ("a", "b", "d")))
    again = await changes.change_ensemble(driver, ledger, versioned, ["c"], 7, d_for_failed)
    assert again == await driver.read_ledger(ledger), "nothing is left to replace"


@pytest.mark.rule("P3")
@pytest.mark.parametrize("states", [(OPEN, IN_RECOVERY), (OPEN, IN_RECOVERY, CLOSED), (IN_RECOVERY,)], ids=str)
async def test_p3_a_writer_closes_no_ledger_that_another_client_recovers(
    driver: ClusterMetadata, states: tuple[LedgerMetadata, ...]
) -> None:
    ledger, versioned = await stored(driver, *states)
    with pytest.raises(LedgerFenced):
        await changes.close_written(driver, ledger, versioned, 7, 70)
    assert (await driver.read_ledger(ledger)).value == states[-1]


@pytest.mark.rule("P3")
async def test_p3_an_end_that_is_the_writers_own_is_a_success(driver: ClusterMetadata) -> None:
    ledger, versioned = await stored(driver, OPEN, IN_RECOVERY, CLOSED)
    assert (await changes.close_written(driver, ledger, versioned, 9, 90)).value == CLOSED


@pytest.mark.rule("P3", "Q13")
async def test_p3_recovery_never_opens_a_closed_ledger_again(driver: ClusterMetadata) -> None:
    ledger, versioned = await stored(driver, OPEN, IN_RECOVERY, CLOSED)
    assert (await changes.begin_recovery(driver, ledger, versioned)).value == CLOSED
    assert (await driver.read_ledger(ledger)).value == CLOSED


@pytest.mark.rule("P3", "Q16")
async def test_q16_who_closes_first_wins_and_the_other_takes_that_end(driver: ClusterMetadata) -> None:
    ledger, versioned = await stored(driver, IN_RECOVERY, CLOSED)
    own = (Fragment(3, ("a", "b", "d")),)
    assert (await changes.close_recovered(driver, ledger, versioned, 4, 40, own)).value == CLOSED


@pytest.mark.rule("Q16")
@pytest.mark.parametrize("now", [OPEN, IN_RECOVERY.with_fragment(4, ("a", "b", "d"))], ids=str)
async def test_q16_an_end_found_in_another_ensemble_is_not_stored(driver: ClusterMetadata, now: LedgerMetadata) -> None:
    ledger, versioned = await stored(driver, IN_RECOVERY, now)
    with pytest.raises(RecoveryIncomplete):
        await changes.close_recovered(driver, ledger, versioned, 4, 40, ())
    assert (await driver.read_ledger(ledger)).value == now


class Losing(ClusterMetadata):
    """A driver that loses the answers of writes: ``made`` says of each in turn whether it was made; then it works.

    ``meanwhile`` happens right after each lost answer; ``unreadable``: nothing can be read after the first."""

    def __init__(
        self,
        driver: ClusterMetadata,
        made: list[bool],
        meanwhile: LedgerMetadata | None = None,
        *,
        unreadable: bool = False,
    ) -> None:
        super().__init__(driver.store)
        self._made, self._meanwhile, self._unreadable = made, meanwhile, unreadable
        self.asked: list[LedgerMetadata] = []

    async def write_ledger(
        self, ledger: int, metadata: LedgerMetadata, version: int, *, absent: Collection[str] = ()
    ) -> int:
        self.asked.append(metadata)
        if not self._made:
            return await super().write_ledger(ledger, metadata, version)
        if self._made.pop(0):
            version = await super().write_ledger(ledger, metadata, version)
        if self._meanwhile is not None:
            await super().write_ledger(ledger, self._meanwhile, version)
        raise MetadataUncertain("the answer was lost")

    async def read_ledger(self, ledger: int) -> changes.VersionedMetadata:
        if self._unreadable:
            raise MetadataUnavailable("the service is gone")
        return await super().read_ledger(ledger)


class Spares:
    """Others in the place of those that failed, and others again when asked again."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    async def replace(self, failed: Collection[str], stored: LedgerMetadata) -> Ensemble:
        if not self.names:
            raise NotEnoughBookies("no other bookie can be had")
        ensemble = stored.ensemble
        spare, places = self.names.pop(0), [slot for slot, bookie in enumerate(ensemble) if bookie in failed]
        return tuple(spare if slot == places[0] else bookie for slot, bookie in enumerate(ensemble))


@pytest.mark.rule("Q8", "P2")
@pytest.mark.parametrize("made", [[True], [False], [False, False], [False, True]], ids=str)
async def test_q8_a_change_whose_answer_was_lost_is_looked_for_and_repeated_as_it_was(
    driver: ClusterMetadata, made: list[bool]
) -> None:
    """Another choice would be believed to have the identity of the first."""
    ledger, versioned = await stored(driver, OPEN)
    losing, spares = Losing(driver, made), Spares("d", "e", "f")
    changed = await changes.change_ensemble(losing, ledger, versioned, ["c"], 7, spares.replace)
    assert changed == await driver.read_ledger(ledger)
    assert changed.value.fragments == (*OPEN.fragments, Fragment(7, ("a", "b", "d")))
    assert spares.names == ["e", "f"] and len({metadata.ensemble for metadata in losing.asked}) == 1


@pytest.mark.rule("P8")
async def test_p8_a_change_that_was_made_in_part_of_its_places_is_a_change(driver: ClusterMetadata) -> None:
    """One spare for two that failed: to ask for another, get none and go on without would confirm what the metadata
    does not name."""
    ledger, versioned = await stored(driver, OPEN)
    changed = await changes.change_ensemble(
        Losing(driver, [True]), ledger, versioned, ["b", "c"], 7, Spares("d").replace
    )
    assert changed.value.ensemble == ("a", "d", "c")


@pytest.mark.rule("P8")
@pytest.mark.parametrize("made", [[True], [False], [False] * changes.ATTEMPTS], ids=str)
async def test_p8_what_may_have_been_made_is_never_said_to_be_certain(
    driver: ClusterMetadata, made: list[bool]
) -> None:
    ledger, versioned = await stored(driver, OPEN)
    losing = Losing(driver, made, unreadable=len(made) == 1)
    with pytest.raises(MetadataUncertain):
        await changes.change_ensemble(losing, ledger, versioned, ["c"], 7, d_for_failed)


@pytest.mark.rule("P8")
async def test_p8_without_a_spare_for_another_choice_a_lost_answer_is_still_in_doubt(driver: ClusterMetadata) -> None:
    """Somebody else moved an older bookie: the change has to be decided anew, and cannot be."""
    ledger, versioned = await stored(driver, OPEN)
    moved = LedgerMetadata(3, 3, 2, (Fragment(0, ("x", "b", "c")),))
    with pytest.raises(MetadataUncertain):
        await changes.change_ensemble(Losing(driver, [False], moved), ledger, versioned, ["c"], 7, Spares("d").replace)


@pytest.mark.rule("P2", "P3")
@pytest.mark.parametrize("made", [True, False])
async def test_p2_a_lost_answer_finds_the_ledger_in_recovery(driver: ClusterMetadata, made: bool) -> None:
    ledger, versioned = await stored(driver, OPEN)
    losing = Losing(driver, [made], IN_RECOVERY)
    with pytest.raises(LedgerFenced):
        await changes.change_ensemble(losing, ledger, versioned, ["c"], 7, d_for_failed)
    assert (await driver.read_ledger(ledger)).value == IN_RECOVERY


@pytest.mark.rule("P3")
@pytest.mark.parametrize("made", [True, False])
async def test_p3_an_end_whose_answer_was_lost_is_stored_once(driver: ClusterMetadata, made: bool) -> None:
    ledger, versioned = await stored(driver, OPEN)
    closed = await changes.close_written(Losing(driver, [made]), ledger, versioned, 9, 90)
    assert (closed.value.last_entry, closed.value.length) == (9, 90)
    assert closed == await driver.read_ledger(ledger) and closed.version == versioned.version + 1


@pytest.mark.rule("P3")
async def test_p3_a_rivals_end_is_not_taken_for_one_whose_answer_was_lost(driver: ClusterMetadata) -> None:
    ledger, versioned = await stored(driver, OPEN)
    with pytest.raises(LedgerFenced):
        await changes.close_written(Losing(driver, [False], IN_RECOVERY.closed(4, 40)), ledger, versioned, 9, 90)
    assert (await driver.read_ledger(ledger)).value.last_entry == 4


async def test_who_only_could_not_read_has_changed_nothing(driver: ClusterMetadata) -> None:
    """A service that is silent says of a read too that it is uncertain."""
    ledger, versioned = await stored(driver, OPEN)

    async def unread(failed: Collection[str], stored: LedgerMetadata) -> Ensemble:
        raise MetadataUncertain("no answer", waited_s=30)

    with pytest.raises(MetadataUnavailable, match="waited_s=30") as caught:
        await changes.change_ensemble(driver, ledger, versioned, ["c"], 7, unread)
    assert not caught.value.ambiguous


@pytest.mark.rule("P2")
async def test_p2_a_writer_that_was_cut_off_acknowledges_nothing_behind_the_end() -> None:
    """Recovery fenced and closed its ensemble while the writer was away from those bookies, with others at hand."""
    cluster = await SmallCluster().start(6)
    try:
        writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
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


@pytest.mark.rule("Q8")
@pytest.mark.parametrize("made", [True, False])
async def test_q8_a_writer_goes_on_after_a_change_whose_answer_was_lost(
    made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await SmallCluster().start(4)
    try:
        writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
        await writer.append(b"0")
        monkeypatch.setattr(cluster.driver, "write_ledger", Losing(copy.copy(cluster.driver), [made]).write_ledger)
        await cluster.down(writer.metadata.ensemble[1])
        assert [await writer.append(b"1"), await writer.append(b"2")] == [1, 2]
        await until(lambda: len(writer.metadata.fragments) == 2)
        assert (await cluster.driver.read_ledger(writer.id)).value == writer.metadata
        assert writer.missing == () and "bookie not believed" not in cluster.kinds()
        await writer.close()
    finally:
        await cluster.close()
