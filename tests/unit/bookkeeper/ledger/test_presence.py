"""Who is registered where a connection leads: of nobody else a response counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.identities import Metadata, send_adds
from support.links import AddLog
from support.machines import machine
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.identity import NOT_REGISTERED
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.driver import RegisteredBookies
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import BookieUnavailable, RecoveryIncomplete
from tallystick.runtime.events import Events


async def connected(bench: Any, metadata: Metadata) -> tuple[Any, AddLog, Any]:
    """A client with a connection to ``b1``, and a channel over it that sends entry 0."""
    client, listener = bench.client(metadata.identify), AddLog()
    channel = client.adds("b1", 7, listener)
    send_adds(bench, channel, 0)
    return client, listener, channel


@pytest.mark.rule("P1")
async def test_p1_acks_of_who_listens_where_a_bookie_was_registered_are_not_its_own(bench: Any) -> None:
    """Its session ended after the client had learnt its address, and before it connected."""
    [bookie] = await bench.bookie("b1")
    metadata = Metadata(bench)
    metadata.registered = lambda name: None
    client, listener, _ = await connected(bench, metadata)
    await until(lambda: listener.failed or listener.acked)
    assert (listener.all_acked, listener.all_failed, metadata.asked) == ([], [0], 1)
    [event] = [event for event in bench.events if event.kind == "bookie not believed"]
    assert NOT_REGISTERED in event.fields["reason"]
    assert (await client.read("b1", 9, 0)).code == Code.NO_LEDGER, "a plain read goes on"
    with pytest.raises(BookieUnavailable, match="another bookie may have its address"):
        await client.read("b1", 9, 0, proven=True)
    assert bookie.opened == 1, "the same connection"


async def test_a_bookie_that_registers_again_is_believed_over_the_same_connection(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, later = Metadata(bench), AddLog()
    metadata.registered, registered = lambda name: None, metadata.registered
    client, listener, _ = await connected(bench, metadata)
    await until(lambda: listener.all_failed == [0])
    metadata.registered = registered
    assert (await client.read("b1", 9, 0, proven=True)).code == Code.NO_LEDGER
    send_adds(bench, client.adds("b1", 7, later), 1)
    await until(lambda: later.all_acked == [1])
    metadata.registered = lambda name: None  # and it stays believed when its session ends: nobody else is there
    send_adds(bench, client.adds("b1", 7, later), 2)
    await until(lambda: later.all_acked == [1, 2])
    assert (await client.read("b1", 9, 0, proven=True)).code == Code.NO_LEDGER
    assert (bookie.opened, metadata.asked) == (1, 2)


async def test_a_connection_to_where_a_bookie_is_no_longer_ends(bench: Any) -> None:
    """The next one leads to where it is."""
    [at_old_address, moved] = await bench.bookie("b1", "moved")
    metadata = Metadata(bench)
    metadata.registered = lambda name: moved.address
    client, listener, channel = await connected(bench, metadata)
    await until(lambda: "bookie connection ended" in bench.kinds())
    assert (listener.all_acked, listener.all_failed) == ([], [0])
    bench.bookies["b1"] = moved
    send_adds(bench, channel, 1)
    await until(lambda: listener.all_acked == [1])
    assert (await client.read("b1", 7, 1, proven=True)).code == Code.OK
    assert (at_old_address.opened, moved.opened) == (1, 1)


async def test_who_answered_a_read_is_not_known_when_its_connection_ends(bench: Any) -> None:
    [bookie] = await bench.bookie("b1")
    metadata, asking = Metadata(bench), asyncio.Event()

    async def gate() -> None:
        asking.set()
        await asyncio.Event().wait()

    metadata.gate = gate
    read = asyncio.ensure_future(bench.client(metadata.identify).read("b1", 9, 0, proven=True))
    await asking.wait()
    await until(lambda: bool(bookie.requests))
    bookie.connections[0].abort()
    with pytest.raises(BookieUnavailable):
        await read


class LateList(ClusterMetadata):
    """The list of bookies as it was before ``b1`` ended and another bookie took its address."""

    successor = "b3"

    async def bookies(self) -> RegisteredBookies:
        listed = await super().bookies()
        return RegisteredBookies({**listed.writable, "b1": listed.writable[self.successor]}, listed.read_only)


@pytest.mark.rule("P1")
async def test_p1_a_no_of_who_took_a_bookies_address_ends_no_ledger() -> None:
    """The one bookie that has the entry is not the one that says that it has not."""
    cluster = await SmallCluster().start(2)
    writer = await cluster.client().create_ledger(2, write_quorum=2, ack_quorum=2)
    assert await writer.append(b"acknowledged") == 0
    await cluster.down("b0", "b1")
    await cluster.add()
    await cluster.add()
    late = BookKeeper(LateList(MemoryStore(cluster.name)), machine(Events(cluster.events.append)), ClientSettings())
    with pytest.raises(RecoveryIncomplete):
        await late.open_ledger(writer.id, recover=True)
    await cluster.up("b0", "b1")
    recovered = await cluster.client().open_ledger(writer.id, recover=True)
    assert recovered.last_entry == 0
    await late.close()
    await cluster.close()
