"""A bookie drops copies that others have in its place: those alone, and never more than is proven."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tallystick
from support.bookies import SMALL, adds, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.surplus import SurplusCopies
from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.findings import CopyFault, FaultKind, FindingTree
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.metadata.restored import RestoredMetadata, encode, restored_path
from tallystick.bookkeeper.metadata.store import Create, Creation
from tallystick.bookkeeper.metadata.underreplication import Underreplication
from tallystick.bookkeeper.repair.ledger_repair import Repaired
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.repair.surplus import shed
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import master_key
from tallystick.bookkeeper.wire.lost_runs import with_lost
from tallystick.bookkeeper.wire.registration import LIMBO
from tallystick.bookkeeper.wire.values import NO_ENTRY, Fragment, LedgerId
from tallystick.runtime.events import Event, Events
from tallystick.runtime.machine import this_machine

pytestmark = pytest.mark.real_time

KEY = master_key(b"pw")
COUNT = 12


@dataclass
class Three:
    """Three bookies; ledgers are on the first two of them."""

    uri: str
    folder: Path
    driver: ClusterMetadata
    running: dict[str, Bookie] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    async def start(self, name: str, **settings: float) -> Bookie:
        home = str(self.folder / name)
        made = BookieSettings(self.uri, (home,), (home,), port=0, bookie_id=name, session_timeout_s=0.5, **settings)  # type: ignore[arg-type]
        outside = this_machine(Events(self.events.append))
        bookie = self.running[name] = await start_bookie(made, outside, SMALL, shed=shed)
        surplus = bookie.surplus
        assert surplus is not None
        surplus._rules = replace(surplus._rules, gap_s=0.0)  # no wait between the two looks
        return bookie

    async def restart(self, name: str, **settings: float) -> Bookie:
        await self.running.pop(name).stop()
        return await self.start(name, **settings)

    async def round(self, *, override: bool = False) -> int:
        surplus = self.running["b0"].surplus
        assert surplus is not None
        return await surplus.round(shed, override=override)

    async def written(self, *, close: bool = True) -> LedgerId:
        """On b0 and b1, and in an entry log of each. Then b2 comes."""
        async with tallystick.connect(self.uri) as bk:
            writer = await bk.create_ledger(2, write_quorum=2, ack_quorum=2, password=b"pw")
            await writer.append_batch([bytes([number]) * 50 for number in range(COUNT)])
            if close:
                await writer.close()
            for bookie in self.running.values():
                await bookie.upkeep.checkpoint()
            await self.start("b2")
            return writer.id

    async def move(self, ledger: LedgerId, leaving: str) -> None:
        """What a bookie has of a ledger goes to the one that has nothing of it."""
        client = LedgerClient(ClusterMetadata(MemoryStore(self.folder.name)), this_machine(), ClientSettings())
        replicator = Replicator(client, "mover", RepairSettings(retry_s=0.1))
        assert isinstance(await replicator.repair_now(ledger, (leaving,), leaving=(leaving,)), Repaired)
        await client.close()

    async def name(self, ledger: LedgerId, *bookies: str) -> None:
        """Let the metadata name these bookies, whatever they have."""
        stored = await self.driver.read_ledger(ledger)
        await self.driver.write_ledger(
            ledger, replace(stored.value, fragments=(Fragment(0, tuple(bookies)),)), stored.version
        )

    def has(self, name: str, ledger: LedgerId) -> bool:
        return self.running[name].storage.last_entry(ledger) != NO_ENTRY

    async def data(self, ledger: LedgerId) -> list[bytes]:
        async with tallystick.connect(self.uri) as bk:
            reader = await bk.open_ledger(ledger, password=b"pw")
            return [entry.data async for entry in reader.read(0, COUNT - 1)]

    def heard(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[Three]:
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    made = Three(f"memory://{tmp_path.name}", tmp_path, driver)
    for name in ("b0", "b1"):
        await made.start(name)
    yield made
    for bookie in made.running.values():
        await bookie.stop()
    await driver.close()


async def code_of_an_add(bookie: Bookie, ledger: LedgerId) -> Code:
    async with talking(bookie) as peer:
        return await peer.code(adds(ledger, [COUNT], key=KEY))


async def test_what_others_have_is_dropped_and_its_space_given_back(three: Three) -> None:
    ledger = await three.written()
    assert await three.round() == 0, "the metadata names it"
    assert not three.has("b2", ledger)
    await three.move(ledger, "b0")
    assert three.has("b0", ledger) and three.has("b2", ledger)
    bookie = three.running["b0"]
    assert bookie.storage.log_ids()
    assert await three.round() == 1
    assert not three.has("b0", ledger) and not bookie.storage.log_ids()
    assert (bookie.counts.surplus_dropped, bookie.counts.surplus_ledgers, bookie.counts.surplus_rounds) == (1, 0, 2)
    [event] = three.heard("surplus copies dropped")
    assert (event.fields["count"], event.fields["ledgers"]) == (1, (ledger,))
    async with talking(bookie) as peer:
        assert {await peer.code(read(ledger, entry)) for entry in range(COUNT)} == {Code.NO_ENTRY}
    await three.running.pop("b1").stop()
    assert await three.data(ledger) == [bytes([number]) * 50 for number in range(COUNT)]
    assert not await Underreplication(three.driver).locks()


async def test_what_shares_a_log_with_it_stays_and_it_does_not_come_back(three: Three) -> None:
    async with tallystick.connect(three.uri) as bk:
        writer = await bk.create_ledger(2, write_quorum=2, ack_quorum=2)
        await writer.append(b"of another ledger")
        await writer.close()
    ledger = await three.written()
    await three.move(ledger, "b0")
    assert await three.round() == 1
    for _ in range(2):
        assert not three.has("b0", ledger) and three.has("b0", writer.id)
        assert three.running["b0"].storage.log_ids()
        await three.restart("b0")


@pytest.mark.rule("Q11")
async def test_q11_a_writer_that_outlived_the_ledger_is_refused_as_before(three: Three) -> None:
    """Also by a bookie that never was told of a fence, after a restart, and while nobody can look at the metadata."""
    ledger = await three.written()
    await three.move(ledger, "b0")
    assert not three.running["b0"].storage.is_fenced(ledger)
    assert await three.round() == 1
    for _ in range(2):
        bookie = three.running["b0"]
        bookie.looks.active = False
        assert bookie.storage.is_fenced(ledger) and not three.has("b0", ledger)
        assert await code_of_an_add(bookie, ledger) != Code.OK
        bookie.looks.active = True
        assert await code_of_an_add(bookie, ledger) == Code.FENCED
        await three.restart("b0")


async def test_who_dropped_a_copy_is_a_place_for_one_again(three: Three) -> None:
    ledger = await three.written()
    await three.move(ledger, "b0")
    assert await three.round() == 1
    await three.move(ledger, "b1")
    assert {name for name in three.running if three.has(name, ledger)} == {"b0", "b1", "b2"}
    assert await three.round() == 0
    for name in ("b2", "b1"):
        await three.running.pop(name).stop()
    await three.restart("b0")
    assert await three.data(ledger) == [bytes([number]) * 50 for number in range(COUNT)]


@pytest.mark.parametrize(
    "what",
    [
        "open",
        "one that is named has nothing",
        "one that is named is away",
        "one that is named is in limbo",
        "one that is named does not answer",
        "a replicator has it in hand",
        "it is marked",
        "it has a finding",
        "repair is disabled",
        "the metadata was restored",
        "entries of it are lost",
        "another ledger of its id",
    ],
)
async def test_what_is_not_proven_to_be_elsewhere_stays(three: Three, what: str) -> None:
    ledger, tree = await three.written(close=what != "open"), Underreplication(three.driver)
    await tree.prepare()
    if what in ("open", "one that is named has nothing"):
        await three.name(ledger, "b1", "b2")
    else:
        await three.move(ledger, "b0")
    if what == "one that is named is away":
        await three.running.pop("b2").stop()
    elif what == "one that is named is in limbo":
        listing = three.running["b2"]._listing
        assert listing is not None
        listing.in_limbo(1)

        async def is_told() -> bool:
            info = (await three.driver.bookies()).find("b2")
            return info is not None and info.properties.get(LIMBO) == "1"

        await until(is_told)
    elif what == "one that is named does not answer":
        await three.running["b2"]._ports.close()
    elif what == "a replicator has it in hand":
        assert await tree.lock(ledger, "other")
    elif what == "it is marked":
        await tree.mark(ledger, ("b1",), 1)
    elif what == "it has a finding":
        await FindingTree(three.driver).note(ledger, [CopyFault(FaultKind.DAMAGED, "b1", ((3, 3),), 1)])
    elif what == "repair is disabled":
        await tree.disable()
    elif what == "the metadata was restored":
        restored = RestoredMetadata(1, 0, ledger + 1, True, (), (), (), (), ())
        await three.driver.store.change(Create(restored_path(three.driver.root), encode(restored)))
    elif what == "entries of it are lost":
        stored = await three.driver.read_ledger(ledger)
        await three.driver.write_ledger(ledger, with_lost(stored.value, [(3, 3)]), stored.version)
    elif what == "another ledger of its id":
        stored = await three.driver.read_ledger(ledger)
        await three.driver.delete_ledger(ledger)
        await three.driver.create_ledger(stored.value, ledger=ledger)
    assert await three.round(override=True) == 0
    assert three.has("b0", ledger) and not three.heard("surplus copies dropped")
    assert (await tree.locks() == {}) != (what == "a replicator has it in hand")


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_was_added_to_since_it_was_proven_stays(three: Three, is_written: bool) -> None:
    """As if the lock had been lost, and another worker had brought copies that the metadata names."""
    ledger = await three.written()
    await three.move(ledger, "b0")
    bookie = three.running["b0"]

    class Late(SurplusCopies):
        async def drop(self, creations: Mapping[LedgerId, Creation], checkpoints: int) -> Sequence[LedgerId]:
            async with talking(bookie) as peer:
                assert await peer.code(adds(ledger, [1], key=KEY, flags=2)) == Code.OK
            if is_written:
                await bookie.upkeep.checkpoint()
            return await super().drop(creations, checkpoints)

    assert bookie.surplus is not None
    bookie.surplus.__class__ = Late
    assert await three.round() == 0 and three.has("b0", ledger)
    bookie.surplus.__class__ = SurplusCopies
    assert await three.round() == 1, "by the next look, which sees what the metadata names then"


async def test_a_lock_that_was_lost_meanwhile_drops_nothing(three: Three) -> None:
    ledger, tree = await three.written(), Underreplication(three.driver)
    await three.move(ledger, "b0")
    bookie = three.running["b0"]

    class Late(SurplusCopies):
        async def fence(self, ledgers: Iterable[LedgerId]) -> None:
            await super().fence(ledgers)
            await Underreplication(bookie.driver).unlock(ledger)
            assert await tree.lock(ledger, "another worker")

    assert bookie.surplus is not None
    bookie.surplus.__class__ = Late
    assert await three.round() == 0 and three.has("b0", ledger)
    assert await tree.locks() == {ledger: "another worker"}


async def test_metadata_that_is_restored_meanwhile_drops_nothing(three: Three) -> None:
    ledger = await three.written()
    await three.move(ledger, "b0")
    restored = RestoredMetadata(1, 0, ledger + 1, True, (), (), (), (), ())

    class Late(SurplusCopies):
        async def fence(self, ledgers: Iterable[LedgerId]) -> None:
            await super().fence(ledgers)
            await three.driver.store.change(Create(restored_path(three.driver.root), encode(restored)))

    bookie = three.running["b0"]
    assert bookie.surplus is not None
    bookie.surplus.__class__ = Late
    assert await three.round() == 0 and three.has("b0", ledger)


async def test_very_much_at_once_waits_over_restarts_and_for_an_operator(three: Three) -> None:
    async with tallystick.connect(three.uri) as bk:
        for _ in range(101):
            async with bk.create_ledger(2, write_quorum=2, ack_quorum=2) as writer:
                await writer.append(b"some")
    await three.start("b2")
    ledgers = [ledger async for ledger in three.driver.ledgers()]
    for ledger in ledgers:
        await three.move(ledger, "b0")
    await three.restart("b0", gc_large_wait_s=1000.0)
    assert await three.round() == 0
    [event] = three.heard("surplus copies wait")
    assert (event.fields["count"], three.running["b0"].counts.surplus_waiting) == (101, 101)

    async def is_listed() -> bool:
        info = (await three.driver.bookies()).find("b0")
        return info is not None and info.properties.get("surplusWaiting") == "101"

    await until(is_listed)
    surplus = three.running["b0"].surplus
    assert surplus is not None and surplus._core._found_at is not None
    surplus._core._found_at -= 600.0
    assert await three.round() == 0
    await three.restart("b0", gc_large_wait_s=1000.0)
    surplus = three.running["b0"].surplus
    assert surplus is not None
    assert await three.round() == 0 and surplus._core.waiting.longest_s >= 600.0
    assert await three.round(override=True) == 101
    assert three.running["b0"].counts.surplus_waiting == 0 and not any(three.has("b0", ledger) for ledger in ledgers)
