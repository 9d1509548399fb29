"""An ack counts only from the bookie that has what was written before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import tallystick
from support.fake_bookie import FakeBookie
from support.identities import Metadata, send_adds
from support.links import AddLog, add_frame
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.ledger.directory import BookieDirectory
from tallystick.bookkeeper.ledger.identity import Belief, LinkIdentity, Unidentified
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import BookiePresence
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerMetadata
from tallystick.errors import BookieUnavailable, LedgerFenced, MetadataUnavailable
from tallystick.runtime.machine import this_machine

# -- what counts ------------------------------------------------------------------------------------------------------


def test_acks_are_held_until_it_is_known_whose_they_are() -> None:
    belief = Belief()
    belief.linked()
    assert belief.acked([0, 1]) is None
    assert belief.acked([2]) is None
    assert belief.identified(7) == (True, [0, 1, 2])
    assert belief.acked([3]) is True


@pytest.mark.parametrize("other", [8, None, Unidentified("the metadata is away")])
def test_over_a_new_link_only_the_same_bookie_counts(other: Any) -> None:
    belief = Belief()
    belief.linked()
    belief.identified(7)
    belief.linked()
    assert belief.acked([4]) is None, "a new link, whoever answers"
    assert belief.identified(other) == (False, [4])
    assert belief.acked([5]) is False
    belief.linked()
    assert belief.identified(7) == (True, [])
    assert belief.acked([6]) is True


def test_a_bookie_without_a_cookie_is_one_bookie() -> None:
    belief = Belief()
    belief.linked()
    assert belief.identified(None) == (True, [])
    belief.linked()
    assert belief.identified(1) == (False, [])


def test_an_identity_that_could_not_be_read_is_not_the_first_one() -> None:
    belief = Belief()
    belief.linked()
    belief.acked([0])
    assert belief.identified(Unidentified("no")) == (False, [0])
    belief.linked()
    assert belief.identified(7) == (True, [])


def test_who_the_bookie_was_when_it_was_chosen_counts_also_over_the_first_link() -> None:
    for expected, identity, counts in ((7, 7, True), (7, 8, False), (7, None, False), (None, None, True)):
        belief = Belief((expected,))
        belief.linked()
        belief.acked([0])
        assert belief.identified(identity) == (counts, [0])


async def test_what_is_read_of_a_bookie_behind_the_end_of_its_link_says_nothing() -> None:
    may_answer, told, moves = asyncio.Event(), list[Any](), list[str]()

    async def identify(bookie: str) -> BookiePresence:
        await may_answer.wait()
        return BookiePresence(7, ("127.0.0.9", 1))

    async def connected() -> tuple[str, int]:
        return "127.0.0.1", 1

    identity = LinkIdentity("b0", identify, connected, moves.append, 5.0)
    identity.ask(told.append)
    await asyncio.sleep(0.01)
    identity.close()
    may_answer.set()
    await asyncio.sleep(0.01)
    assert [type(each) for each in told] == [Unidentified] and not moves


# -- over connections -------------------------------------------------------------------------------------------------


async def test_the_identity_is_read_once_a_connection_after_it_was_made(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, one, two = Metadata(bench), AddLog(), AddLog()
    opened = asyncio.Event()

    async def gate() -> None:
        assert bookie.opened == 1
        await opened.wait()

    metadata.gate = gate
    client = bench.client(metadata.identify)
    first, second = client.adds("b1", 7, one), client.adds("b1", 8, two)
    send_adds(bench, first, 0, 1)
    second.send([0], add_frame(bench, 8, 0))
    await until(lambda: len(bookie.requests) == 3)
    await client.read("b1", 9, 0)  # its answer comes behind those of the adds, and needs no identity
    assert (one.acked, two.acked) == ([], [])
    opened.set()
    await until(lambda: one.acked and two.acked)
    assert (one.all_acked, two.all_acked, metadata.asked) == ([0, 1], [0], 1)
    third = client.adds("b1", 9, one)
    third.send([5], add_frame(bench, 9, 5))
    await until(lambda: one.all_acked == [0, 1, 5])
    assert metadata.asked == 1


async def test_after_a_reconnect_another_bookie_is_not_believed(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, listener, new = Metadata(bench), AddLog(), AddLog()
    client = bench.client(metadata.identify)
    channel = client.adds("b1", 7, listener)
    send_adds(bench, channel, 0)
    await until(lambda: listener.all_acked == [0])
    bookie.connections[0].abort()
    await until(lambda: "bookie connection ended" in bench.kinds())
    metadata.creation = 2
    send_adds(bench, channel, 1, 2)
    await until(lambda: listener.failed)
    send_adds(bench, channel, 3)
    await until(lambda: listener.all_failed == [1, 2, 3])
    assert (listener.all_acked, {code for _, code in listener.failed}) == ([0], {None})
    assert "another bookie" in channel.failure
    [event] = [event for event in bench.events if event.kind == "bookie not believed"]
    assert "another bookie took its id" in event.fields["reason"]
    fresh = client.adds("b1", 8, new)  # which never wrote to the old one
    fresh.send([0], add_frame(bench, 8, 0))
    await until(lambda: new.all_acked == [0])


async def test_after_a_reconnect_the_same_bookie_is_believed(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, listener = Metadata(bench), AddLog()
    channel = bench.client(metadata.identify).adds("b1", 7, listener)
    for entry in range(3):
        send_adds(bench, channel, entry)
        await until(lambda: len(listener.all_acked) == entry + 1)  # noqa: B023  # awaited at once
        bookie.connections[0].abort()
        await until(lambda: not bookie.connections)
        await until(lambda: bench.kinds().count("bookie connection ended") == entry + 1)  # noqa: B023
    assert metadata.asked == 3
    assert listener.failed == []


@pytest.mark.parametrize("hangs", [False, True])
async def test_without_the_metadata_no_ack_counts_and_reads_go_on(bench: Any, hangs: bool) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.entries[9, 0] = bench.entry(9, 0, b"x")
    metadata, listener, later = Metadata(bench), AddLog(), AddLog()

    async def gate() -> None:
        if not hangs:
            raise MetadataUnavailable("away")
        await asyncio.Event().wait()

    metadata.gate = gate
    client = bench.client(metadata.identify, add_timeout_s=0.3 if hangs else 30.0)
    channel = client.adds("b1", 7, listener)
    send_adds(bench, channel, 0, 1)
    await until(lambda: listener.all_failed == [0, 1])
    assert (await client.read("b1", 9, 0)).code == 0
    assert bookie.opened == 1
    metadata.gate = None
    other = client.adds("b1", 8, later)
    other.send([0], add_frame(bench, 8, 0))
    await until(lambda: later.all_acked == [0])  # it asked again


async def test_a_connection_that_ends_while_its_identity_is_read(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, listener, asking = Metadata(bench), AddLog(), asyncio.Event()

    async def gate() -> None:
        asking.set()
        await asyncio.Event().wait()

    metadata.gate = gate
    channel = bench.client(metadata.identify).adds("b1", 7, listener)
    bookie.script = lambda request: None
    send_adds(bench, channel, 0)
    await asking.wait()
    bookie.connections[0].abort()
    await until(lambda: listener.all_failed == [0])
    assert listener.acked == []


async def test_acks_held_when_the_connection_ends_are_reported_as_failed(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, listener = Metadata(bench), AddLog()

    async def gate() -> None:
        await asyncio.Event().wait()

    metadata.gate = gate
    client = bench.client(metadata.identify)
    channel = client.adds("b1", 7, listener)
    send_adds(bench, channel, 0)
    await client.read("b1", 9, 0)  # the ack is here
    bookie.connections[0].abort()
    await until(lambda: listener.all_failed == [0])
    assert listener.acked == []
    assert bookie.opened == 1, "nothing was sent again"


async def test_a_bookie_that_takes_a_place_over_is_believed_as_itself() -> None:
    cluster = await SmallCluster().start(5)
    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"cookie", None)
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    for entry in range(3):
        async with asyncio.timeout(30):
            assert await writer.append(b"x") == entry
        if entry < 2:
            await cluster.down(writer.metadata.ensemble[0])
    assert len(writer.metadata.fragments) == 3
    assert "bookie not believed" not in cluster.kinds()
    await cluster.close()


async def rejoined_elsewhere(cluster: SmallCluster, name: str) -> FakeBookie:
    """A bookie comes back with another disk, at another address. Returns the process that only hung."""
    hung = cluster.bookies[name]
    await cluster.unregister(name)
    cluster.bookies[name] = FakeBookie(name)
    await cluster.up(name)
    return hung


@pytest.mark.rule("Q15")
async def test_q15_a_process_whose_bookie_rejoined_elsewhere_is_asked_for_nothing() -> None:
    """It only hung, or was cut off from the metadata. The connection to it is as good as ever; what it acknowledges of
    a new ledger, and a fence, the bookie that is registered knows nothing of, and denies in no limbo."""
    cluster = await SmallCluster().start(3)
    client = cluster.client(degraded_writes=False, absent_bookie_s=0.0)
    async with client.create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
        await writer.append(b"all are connected")
    hung = await rejoined_elsewhere(cluster, "b0")
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"by whom?")
    assert cluster.holders(writer.id, 0) == {"b0", "b1", "b2"}
    assert (await client.open_ledger(writer.id, recover=True)).last_entry == 0
    assert writer.id in cluster.bookies["b0"].fenced and writer.id not in hung.fenced
    await hung.stop()
    await cluster.close()


@pytest.mark.rule("Q15")
async def test_q15_nor_is_it_believed_by_who_has_not_read_that_yet() -> None:
    cluster = await SmallCluster().start(1)
    client = cluster.client(absent_bookie_s=0.0)
    async with client.create_ledger(1, write_quorum=1, ack_quorum=1) as writer:
        await writer.append(b"connected")
    bookies = client.context.bookies
    assert (await bookies.read("b0", writer.id, 0, proven=True)).code == Code.OK
    hung = await rejoined_elsewhere(cluster, "b0")
    with pytest.raises(BookieUnavailable, match="registered at"):
        await bookies.read("b0", writer.id, 0, proven=True)
    assert (await bookies.read("b0", writer.id, 0, proven=True)).code == Code.NO_LEDGER
    await hung.stop()
    await cluster.close()


async def test_what_was_read_before_the_registrations_changed_is_read_again() -> None:
    here, identities = ("127.0.0.1", 1), list[Any]()
    presences = [BookiePresence(1, here), BookiePresence(1, here), BookiePresence(2, here)]

    async def identify(bookie: str) -> BookiePresence:
        if len(presences) == 2:
            link.registrations_changed()
        return presences.pop(0)

    async def connected() -> tuple[str, int]:
        return here

    link = LinkIdentity("b0", identify, connected, lambda reason: None, 10.0)
    link.ask(identities.append)
    await until(lambda: identities == [1])
    link.registrations_changed()
    link.ask(identities.append)
    await until(lambda: identities == [1, 2])
    assert not presences


async def test_identities_are_read_once_until_the_registrations_change() -> None:
    cluster = await SmallCluster().start(4)
    asked: list[str] = []

    class Asked(ClusterMetadata):
        async def bookie_creation(self, bookie: str) -> int | None:
            asked.append(bookie)
            return await super().bookie_creation(bookie)

    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"cookie", None)
    directory = BookieDirectory(Asked(MemoryStore(cluster.name)))
    first = await directory.identities(["b0", "b1", "b0"])
    assert first == {name: await cluster.driver.bookie_creation(name) for name in ("b0", "b1")}
    assert await directory.identities(["b1", "b2"]) == {
        name: await cluster.driver.bookie_creation(name) for name in ("b1", "b2")
    }
    assert asked == ["b0", "b1", "b2"]
    await cluster.down("b3")
    await until(lambda: directory._bookies is None and not directory._identities)
    await directory.identities(["b1"])
    assert asked == ["b0", "b1", "b2", "b1"]
    directory.close()
    await cluster.close()


async def test_a_bookie_that_is_replaced_after_it_took_a_place_over_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is chosen, then somebody else takes its id, and only then the writer connects."""
    cluster = await SmallCluster().start(5)
    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"cookie", None)
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    stored: list[str] = []
    write_ledger = client.context.driver.write_ledger

    async def then_replaced(ledger: int, metadata: LedgerMetadata, version: int, **more: Any) -> int:
        if not stored:
            [new] = set(metadata.ensemble) - set(writer.metadata.ensemble)
            stored.append(new)
            cookie = await cluster.driver.read_cookie(new)
            if cookie is not None:
                await cluster.driver.delete_cookie(new, cookie.version)
            await cluster.driver.write_cookie(new, b"another", None)
        return await write_ledger(ledger, metadata, version, **more)

    monkeypatch.setattr(client.context.driver, "write_ledger", then_replaced)
    await cluster.down(writer.metadata.ensemble[0])
    async with asyncio.timeout(30):
        assert await writer.append(b"x") == 0
    [event] = [event for event in cluster.events if event.kind == "bookie not believed"]
    assert event.fields["bookie"] == stored[0] and stored[0] not in writer.metadata.ensemble
    await cluster.close()


async def test_a_bookie_that_is_replaced_after_the_ledger_was_stored_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger that is stored may be found, recovered and closed by anybody: its bookies are asked for before."""
    cluster = await SmallCluster().start(4)
    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"cookie", None)
    client = cluster.client()
    create_ledger = client.context.driver.create_ledger

    async def then_replaced(metadata: LedgerMetadata, ledger: int | None = None, **more: Any) -> Any:
        created = await create_ledger(metadata, ledger, **more)
        cookie = await cluster.driver.read_cookie(metadata.ensemble[0])
        assert cookie is not None
        await cluster.driver.delete_cookie(metadata.ensemble[0], cookie.version)
        await cluster.driver.write_cookie(metadata.ensemble[0], b"another", None)
        return created

    monkeypatch.setattr(client.context.driver, "create_ledger", then_replaced)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    replaced = writer.metadata.ensemble[0]
    async with asyncio.timeout(30):
        assert await writer.append(b"x") == 0
    [event] = [event for event in cluster.events if event.kind == "bookie not believed"]
    assert event.fields["bookie"] == replaced and replaced not in writer.metadata.ensemble
    await cluster.close()


# -- the whole story (bookkeeper#4812) --------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.parametrize("before", [0, 10])
async def test_empty_bookies_at_old_addresses_acknowledge_nothing_to_a_writer_of_a_closed_ledger(
    tmp_path: Path, before: int
) -> None:
    """Three bookies die and are replaced by empty ones of the same ids and addresses; the writer slept through it. It
    may have written nothing yet: then it has met none of them, and entry 0 is looked at nowhere."""
    driver = ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    ports: dict[str, int] = {}

    async def start(name: str, folder: str) -> Bookie:
        home = str(tmp_path / folder / name)
        settings = BookieSettings(
            f"memory://{tmp_path.name}", (home,), (home,), port=ports.get(name, 0), bookie_id=name
        )
        bookie = await start_bookie(settings, this_machine())
        ports[name] = bookie.address[1]
        return bookie

    running = {name: await start(name, "old") for name in ("b0", "b1", "b2", "b3", "b4", "b5")}
    uri = f"memory://{tmp_path.name}"
    async with tallystick.connect(uri) as bk, tallystick.connect(uri) as rival:
        writer = await bk.create_ledger(3, write_quorum=3, ack_quorum=2)
        await writer.append_batch([b"%d" % number for number in range(before)])
        closed = await rival.open_ledger(writer.id, recover=True)
        assert closed.last_entry == before - 1
        for name in writer.metadata.ensemble:
            await running[name].stop()
            cookie = await driver.read_cookie(name)
            assert cookie is not None
            await driver.delete_cookie(name, cookie.version)
            running[name] = await start(name, "new")
        assert await acknowledged(writer) == []
        assert (await driver.read_ledger(writer.id)).value.last_entry == before - 1
    for bookie in running.values():
        await bookie.stop()
    await driver.close()


async def acknowledged(writer: LedgerWriter) -> list[int]:
    found = []
    for _ in range(3):
        try:
            async with asyncio.timeout(30):
                found.append(await writer.append(b"late"))
        except LedgerFenced:
            pass
    return found
