"""A deleted ledger's bookies refuse its writer; those that are not there do not hinder the deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import tallystick
from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.ledger import delete
from tallystick.bookkeeper.metadata.cluster import ClusterMetadata
from tallystick.bookkeeper.metadata.memory import MemoryStore
from tallystick.errors import LedgerExists, LedgerFenced, MetadataUnavailable, NoSuchLedger, NotEnoughBookies
from tallystick.runtime.machine import this_machine


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


def deleted(cluster: SmallCluster) -> list[str]:
    [event] = [event for event in cluster.events if event.kind == "ledger deleted"]
    found: list[str] = event.fields["unfenced"]
    return found


async def test_the_writer_of_a_deleted_ledger_is_refused_by_its_bookies(cluster: SmallCluster) -> None:
    one, other = cluster.client(), cluster.client(2)
    writer = await one.create_ledger(3, write_quorum=3, ack_quorum=2, password=b"secret")
    await writer.append(b"x")
    await other.delete_ledger(writer.id)
    assert deleted(cluster) == []
    assert all(writer.id in cluster.bookies[name].fenced for name in writer.metadata.ensemble)
    with pytest.raises(LedgerFenced, match="recovers"):  # a bookie said so, not the metadata
        await writer.append(b"y")


async def test_bookies_of_all_fragments_are_told_the_newest_first(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    lost = writer.metadata.ensemble[1]
    await cluster.down(lost)
    await writer.append(b"y")
    await cluster.up(lost)
    assert lost not in writer.metadata.ensemble
    await cluster.client(2).delete_ledger(writer.id)
    assert all(writer.id in bookie.fenced for bookie in cluster.bookies.values())


async def test_bookies_that_are_away_do_not_hinder_it(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete, "RESPONSE_TIMEOUT_S", 0.3)
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    hung, dead, alive = writer.metadata.ensemble
    cluster.bookies[hung].misbehave = lambda request: HANG
    await cluster.down(dead)
    await client.delete_ledger(writer.id)
    assert deleted(cluster) == [hung, dead]
    assert writer.id in cluster.bookies[alive].fenced
    with pytest.raises(NoSuchLedger):
        await client.ledger_metadata(writer.id)


async def test_a_service_that_does_not_answer_is_no_reason_to_delete_without_fencing(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event said that no bookie was left out, and the writer went on."""
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")

    async def no_answer(ledger: int) -> None:
        raise MetadataUnavailable("the metadata service did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(client.context.driver, "read_ledger", no_answer)
        with pytest.raises(MetadataUnavailable):
            await client.delete_ledger(writer.id)
    assert await client.ledger_metadata(writer.id)
    assert "ledger deleted" not in cluster.kinds()


async def test_a_ledger_that_is_not_there(cluster: SmallCluster) -> None:
    with pytest.raises(NoSuchLedger):
        await cluster.client().delete_ledger(404)
    assert not any(bookie.requests for bookie in cluster.bookies.values())


async def test_an_id_that_bookies_which_are_away_may_hold_is_not_given_away_unasked(cluster: SmallCluster) -> None:
    client = cluster.client()
    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"cookie", None)
    await cluster.down("b3")
    with pytest.raises(LedgerExists, match="do not answer") as raised:
        await client.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7)
    assert raised.value.fields["bookies"] == ("b3",)
    async with client.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7, accept_silent_bookies=True) as writer:
        await writer.append(b"x")
    cluster.bookies["b0"].put(8, 0, b"an entry of the old ledger, with its header")
    with pytest.raises(LedgerExists, match="still hold"):
        await client.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=8, accept_silent_bookies=True)
    await cluster.driver.delete_cookie("b3", 0)
    await client.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=9)


@pytest.mark.rule("Q2", "Q8", "Q14")
async def test_a_bookie_that_may_hold_an_older_ledger_of_an_id_never_holds_the_new_one(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only slept, and answers again: neither the writer nor a recovery takes it, though there is no other."""
    monkeypatch.setattr(delete, "RESPONSE_TIMEOUT_S", 0.3)
    sleeper = cluster.bookies["b3"]
    sleeper.misbehave = lambda request: HANG
    client = cluster.client()
    with pytest.raises(NotEnoughBookies, match="available=3"):
        await client.create_ledger(4, ledger_id=7, accept_silent_bookies=True)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7, accept_silent_bookies=True)
    sleeper.misbehave = None
    assert writer.metadata.avoided == ("b3",)
    await writer.append(b"0")
    await cluster.down("b0")
    await writer.append(b"1")
    await until(lambda: writer.missing == ("b0",))
    await cluster.up("b0")
    await until(lambda: writer.missing == ())
    await writer.append(b"2")
    writer.abort()
    await cluster.down("b1")
    reader = await cluster.client(2).open_ledger(7, recover=True)
    assert [entry.data async for entry in reader.read(0, reader.last_entry)] == [b"0", b"1", b"2"]
    assert "recovery goes on degraded" in cluster.kinds()
    assert all("b3" not in fragment.bookies for fragment in reader.metadata.fragments)
    assert 7 not in sleeper.storage.ledger_ids()


@pytest.mark.real_time
async def test_an_id_that_is_used_again_before_the_collection_shows_no_old_entries(tmp_path: Path) -> None:
    """Of the old ledger 0 to 9, of the new one 0 to 2, and then its writer is gone."""
    uri, driver = f"memory://{tmp_path.name}", ClusterMetadata(MemoryStore(tmp_path.name))
    await driver.init_cluster()
    bookies = []
    for number in range(3):
        home = str(tmp_path / f"b{number}")
        settings = BookieSettings(uri, (home,), (home,), port=0, bookie_id=f"b{number}")
        bookies.append(await start_bookie(settings, this_machine()))
    async with tallystick.connect(uri) as bk:
        async with bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7) as old:
            await old.append_batch([b"old"] * 10)
        await bk.delete_ledger(7)
        with pytest.raises(LedgerExists, match="still hold"):
            await bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7)
        await collected(bookies)
        new = await bk.create_ledger(3, write_quorum=3, ack_quorum=2, ledger_id=7)
        await new.append_batch([b"new"] * 3)
        new.abort()
        reader = await bk.open_ledger(7, recover=True)
        assert [entry.data async for entry in reader.read(0, reader.last_entry)] == [b"new"] * 3
    for bookie in bookies:
        await bookie.stop()
    await driver.close()


async def collected(bookies: list[Bookie]) -> None:
    for bookie in bookies:
        core = bookie.collection._core
        core._rules = replace(core._rules, gap_s=0.0)
        await bookie.collection.run()
