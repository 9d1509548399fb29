"""An operator's process hangs, or does not hear of its change, while it gives entries up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.metadata.given_up import GivenUp, GivenUpTree
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.repair.give_up import GivingUp, Loss
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.wire.lost_runs import LOST_KEY, with_lost
from tallystick.bookkeeper.wire.values import LedgerMetadata, LedgerState
from tallystick.errors import EntryLost, MetadataUncertain, TallyError

ENTRIES = 10


class Case:
    """A ledger of which a bookie that is gone alone has entry 3 and the last one, and who gives them up."""

    def __init__(self, cluster: RepairedCluster) -> None:
        self._cluster, self._client = cluster, cluster.client()

    async def made(self, *, is_open: bool) -> Case:
        self.ledger = await self._cluster.written(ENTRIES, close=not is_open, ensemble=2, ack_quorum=1)
        damaged, self._gone = (await self._cluster.metadata(self.ledger)).ensemble
        self._stored = self._cluster.bookies[damaged].entries
        self._frames = {(self.ledger, entry): self._stored.pop((self.ledger, entry)) for entry in (3, ENTRIES - 1)}
        await self._cluster.down(self._gone)
        self.shown = await self._giving_up().look()
        return self

    def _giving_up(self) -> GivingUp:
        return GivingUp(self._client, self.ledger, RepairSettings())

    async def give_up(self) -> Loss:
        return await self._giving_up().give_up(self.shown, "op")

    def before_write(self, happens: Callable[[], Awaitable[None]], what: Callable[[LedgerMetadata], bool]) -> None:
        """``happens`` right before the client's first write of ``what``."""
        driver, write, waiting = self._client.context.driver, self._client.context.driver.write_ledger, [happens]

        async def write_ledger(ledger: int, metadata: LedgerMetadata, version: int, **more: Any) -> int:
            if what(metadata) and waiting:
                await waiting.pop()()
            return await write(ledger, metadata, version, **more)

        driver.write_ledger = write_ledger  # type: ignore[method-assign]

    async def bookie_is_back(self) -> None:
        await self._cluster.up(self._gone)

    async def answer_is_lost(self) -> None:
        raise MetadataUncertain("the answer was lost")

    async def made_before(self) -> None:
        """The change is made, and its answer is lost."""
        stored = await self._cluster.driver.read_ledger(self.ledger)
        await self._cluster.driver.write_ledger(self.ledger, with_lost(stored.value, self.shown.lost), stored.version)
        await self.answer_is_lost()

    async def another_makes_good(self) -> None:
        """It has the lock, as the session of this one ended; the metadata stays as it is."""
        await self._cluster.driver.store.change(Delete(self._cluster.tree._lock_path(self.ledger)))
        self._stored.update(self._frames)

    async def require_readable(self) -> None:
        reader = await self._cluster.client().open_ledger(self.ledger, recover=True)
        assert reader.last_entry == ENTRIES - 1
        try:
            assert [entry.id async for entry in reader.read(0, ENTRIES - 1)] == list(range(ENTRIES))
        except EntryLost as error:
            pytest.fail(f"entry {error.entry} is there, and nobody may read it")


def gives_up(metadata: LedgerMetadata) -> bool:
    return LOST_KEY in metadata.custom


def closes(metadata: LedgerMetadata) -> bool:
    return metadata.is_closed


@pytest.mark.parametrize("is_open", [False, True])
async def test_nothing_is_given_up_of_a_bookie_that_is_back_when_the_change_is_made(
    cluster: RepairedCluster, is_open: bool
) -> None:
    """To write back what is left takes its time, and who is stopped in it goes on much later."""
    case = await Case(cluster).made(is_open=is_open)
    case.before_write(case.bookie_is_back, closes if is_open else gives_up)
    with pytest.raises(TallyError, match="is back"):
        await case.give_up()
    if is_open:
        assert (await cluster.metadata(case.ledger)).state is LedgerState.IN_RECOVERY
    await case.require_readable()
    assert await cluster.tree.locks() == {}


@pytest.mark.parametrize("is_made", [False, True])
async def test_what_is_given_up_stands_in_the_metadata_though_an_answer_was_lost(
    cluster: RepairedCluster, is_made: bool
) -> None:
    """The end of the ledger was as it should be before the change, and was taken for it."""
    case = await Case(cluster).made(is_open=False)
    case.before_write(case.made_before if is_made else case.answer_is_lost, gives_up)
    assert await case.give_up() == case.shown
    reader = await cluster.client().open_ledger(case.ledger)
    with pytest.raises(EntryLost):
        await anext(reader.read(3, 3))


@pytest.mark.parametrize("when", ["before the change", "and its answer is lost"])
async def test_who_lost_the_lock_while_it_hung_gives_nothing_up(
    cluster: RepairedCluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another one made the entries good under that lock, and the bookie may be gone again."""
    case = await Case(cluster).made(is_open=False)
    note = GivenUpTree.note

    async def hangs_behind(tree: GivenUpTree, line: GivenUp) -> None:
        await note(tree, line)
        await case.another_makes_good()

    async def hangs() -> None:
        await case.another_makes_good()
        await case.answer_is_lost()

    if when == "before the change":
        monkeypatch.setattr(GivenUpTree, "note", hangs_behind)
    else:
        case.before_write(hangs, gives_up)
    with pytest.raises(TallyError, match="lock" if when == "before the change" else "lost"):
        await case.give_up()
    await case.require_readable()


async def test_a_ledger_that_changed_since_the_look_is_not_given_up(cluster: RepairedCluster) -> None:
    """Nobody but the holder of the lock changes a closed one; who does it all the same knows something else of it."""
    case = await Case(cluster).made(is_open=False)

    async def changes() -> None:
        stored = await cluster.driver.read_ledger(case.ledger)
        other = replace(stored.value, custom={"else": b"1"})
        await cluster.driver.write_ledger(case.ledger, other, stored.version)

    case.before_write(changes, gives_up)
    with pytest.raises(TallyError, match="look again"):
        await case.give_up()
