"""A writer that lacks bookies goes on, says so, and gets them back; over sockets, with bookies that die on order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import degraded as degraded_
from tallystick.bookkeeper.ledger import restorer
from tallystick.bookkeeper.ledger.shortage import Shortage, changed_nothing
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.errors import (
    LedgerClosed,
    LedgerFenced,
    MetadataConflict,
    MetadataUnavailable,
    MetadataUncertain,
    NotEnoughBookies,
)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def degraded(cluster: SmallCluster, **settings: Any) -> tuple[LedgerWriter, str]:
    """A writer of three bookies that lost one after entry 0, and confirmed entry 1 without it."""
    writer = await cluster.client(**settings).create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    missing_bookie = writer.metadata.ensemble[1]
    await until(lambda: missing_bookie in cluster.holders(writer.id, 0))
    await cluster.down(missing_bookie)
    await writer.append(b"1")
    await until(lambda: writer.missing == (missing_bookie,) or writer._failure is not None)
    return writer, missing_bookie


@pytest.mark.rule("Q5", "Q7")
async def test_q7_with_three_bookies_one_death_does_not_end_the_writer(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    missing_bookie = writer.metadata.ensemble[1]
    await cluster.down(missing_bookie)
    for number in range(1, 50):
        assert await writer.append(b"%d" % number) == number
    assert writer.missing == (missing_bookie,) and client.degraded() == {writer.id: (missing_bookie,)}
    assert all(len(cluster.holders(writer.id, entry)) >= 2 for entry in range(50))
    told = next(event for event in cluster.events if event.kind == "ledger degraded")
    assert told.fields["missing"] == (missing_bookie,) and told.fields["ledger"] == writer.id
    await writer.close()
    assert client.degraded() == {}
    assert (writer.metadata.state, writer.metadata.last_entry) == (LedgerState.CLOSED, 49)
    assert len(writer.metadata.fragments) == 1
    reader = await cluster.client().open_ledger(writer.id)
    assert [entry.data async for entry in reader.read(0, 49)] == [b"%d" % number for number in range(50)]


@pytest.mark.rule("Q8")
async def test_q8_a_bookie_that_registers_takes_the_place_at_once(cluster: SmallCluster) -> None:
    writer, missing_bookie = await degraded(cluster)
    new = await cluster.add()
    await until(lambda: writer.missing == ())
    assert writer.metadata.fragments[-1].bookies[1] == new.id
    assert await writer.append(b"2") == 2
    await until(lambda: new.id in cluster.holders(writer.id, 2))
    assert "ledger restored" in cluster.kinds()
    assert writer._writers.restorer.writers == ()
    await cluster.up(missing_bookie)  # changes nothing any more
    assert await writer.append(b"3") == 3
    assert missing_bookie not in cluster.holders(writer.id, 3)
    assert cluster.kinds().count("ledger restored") == 1
    await writer.close()


@pytest.mark.rule("P1")
async def test_p1_the_bookie_itself_comes_back_with_a_gap_that_nobody_counts(cluster: SmallCluster) -> None:
    writer, missing_bookie = await degraded(cluster)
    assert missing_bookie not in cluster.holders(writer.id, 1)
    await cluster.up(missing_bookie)
    await until(lambda: writer.missing == ())
    await writer.append(b"2")
    await until(lambda: missing_bookie in cluster.holders(writer.id, 2))
    assert missing_bookie not in cluster.holders(writer.id, 1), (
        "an entry that was confirmed without it is not sent again"
    )
    others = [bookie for bookie in writer.metadata.ensemble if bookie != missing_bookie]
    await cluster.down(others[0])  # now each entry but 1 is on two bookies, and 1 on one
    assert await writer.append(b"3") == 3
    assert cluster.holders(writer.id, 3) == {missing_bookie, others[1]}
    writer.abort()
    await cluster.up(others[0])
    reader = await cluster.client().open_ledger(writer.id, recover=True)
    assert [entry.data async for entry in reader.read(0, reader.last_entry)] == [b"0", b"1", b"2", b"3"]


async def test_a_connection_that_was_reset_costs_its_bookie_a_moment(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    victim = cluster.bookies[writer.metadata.ensemble[0]]
    victim.held = []
    future = writer.append_nowait(b"1")
    await until(lambda: bool(victim.held))
    victim.held = None
    victim.connections[0].abort()
    await future
    await writer.append(b"2")
    await until(lambda: "ledger restored" in cluster.kinds())
    await writer.append(b"3")
    await until(lambda: victim.id in cluster.holders(writer.id, 3))
    assert len(writer.metadata.fragments) == 1


@pytest.mark.rule("Q5")
async def test_q5_where_the_quorum_needs_the_missing_bookie_appends_wait_for_it(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=2, ack_quorum=2)
    await writer.append(b"0")
    missing_bookie = writer.metadata.ensemble[2]
    await cluster.down(missing_bookie)
    futures = [writer.append_nowait(b"x") for _ in range(9)]
    await until(lambda: writer.missing == (missing_bookie,))
    assert not futures[0].done()  # entry 1 is on that bookie and one other
    await cluster.up(missing_bookie)
    assert [await future for future in futures] == list(range(1, 10))
    await writer.close()


async def test_a_bookie_that_hangs_is_missing_after_its_time_out_and_is_sent_nothing(cluster: SmallCluster) -> None:
    writer = await cluster.client(add_timeout_s=0.1, read_timeout_s=0.1).create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    hung = cluster.bookies[writer.metadata.ensemble[0]]
    hung.misbehave = lambda request: HANG
    await writer.append(b"1")
    await until(lambda: bool(hung.requests) and isinstance(hung.requests[-1], v2.AddFrame))
    while not writer.missing:
        await writer.append(b"more")
        await asyncio.sleep(0.01)
    adds = [request for request in hung.requests if isinstance(request, v2.AddFrame)]
    for _ in range(20):
        await writer.append(b"more")
    assert [request for request in hung.requests if isinstance(request, v2.AddFrame)] == adds
    hung.misbehave = None
    await until(lambda: writer.missing == ())
    await writer.close()


@pytest.mark.rule("P8", "Q14")
async def test_p8_recovery_of_a_degraded_ledger_finds_all_of_it_with_the_bookie_still_gone(
    cluster: SmallCluster,
) -> None:
    writer, missing_bookie = await degraded(cluster)
    acked = await writer.append_batch([b"%d" % number for number in range(2, 40)])
    left = [cluster.bookies[name] for name in writer.metadata.ensemble if name != missing_bookie]
    for bookie in left:
        bookie.held = []
    writer.append_nowait(b"sent and not confirmed")
    await until(lambda: all(bookie.held for bookie in left))
    writer.abort()
    for bookie in left:
        bookie.held = None
    client = cluster.client(7)
    reader = await client.open_ledger(writer.id, recover=True)
    assert reader.last_entry == acked[-1] + 1  # written back to the two that are left
    assert [entry.id async for entry in reader.read(0, reader.last_entry)] == list(range(reader.last_entry + 1))


async def test_a_degraded_writer_that_is_fenced_ends(cluster: SmallCluster) -> None:
    writer, _ = await degraded(cluster)
    await cluster.client(5).open_ledger(writer.id, recover=True)
    with pytest.raises(LedgerFenced):
        await writer.append(b"late")
    await cluster.add()
    await asyncio.sleep(0)
    with pytest.raises(LedgerFenced):
        await writer.close()


async def test_while_the_metadata_service_is_away_the_writer_goes_on_and_changes_later(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.add()
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    driver, write = client.context.driver, client.context.driver.write_ledger

    async def away(*_: object, **more: object) -> int:
        raise MetadataUnavailable("away")

    monkeypatch.setattr(driver, "write_ledger", away)
    missing_bookie = writer.metadata.ensemble[0]
    await cluster.down(missing_bookie)
    for number in range(1, 10):
        assert await writer.append(b"x") == number
    await until(lambda: writer.missing == (missing_bookie,))
    monkeypatch.setattr(driver, "write_ledger", write)
    await until(lambda: writer.missing == ())
    assert missing_bookie not in writer.metadata.ensemble
    await writer.close()


async def test_a_writer_that_is_stopped_leaves_nothing_that_tries_again(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await cluster.down(writer.metadata.ensemble[0])
    await writer.append(b"0")
    await until(lambda: client.degraded() != {})
    writer.abort()
    assert client.degraded() == {}
    await client.close()


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (NotEnoughBookies(), True),
        (MetadataUnavailable(), True),
        (MetadataUncertain(), False),
        (MetadataConflict(), False),
        (LedgerFenced(), False),
        (RuntimeError(), False),
    ],
)
def test_only_what_certainly_changed_nothing_lets_the_writer_go_on(error: Exception, certain: bool) -> None:
    """Else the metadata may name an ensemble that lacks what would be confirmed."""
    assert changed_nothing(error) is certain


@pytest.mark.rule("P1")
async def test_p1_an_empty_bookie_that_took_the_missing_ones_id_is_not_believed(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back under the same id and address with nothing of what was acknowledged."""
    writer, missing_bookie = await degraded(cluster)
    bookies = writer._writers.context.bookies

    async def another(bookie: str) -> int:
        return 10_000

    monkeypatch.setattr(bookies._peers[missing_bookie, 0], "_identify", another)
    cluster.bookies[missing_bookie].clear()
    slow = next(cluster.bookies[name] for name in writer.metadata.ensemble if name != missing_bookie)
    slow.held = []
    pending = writer.append_nowait(b"on one bookie, and on one that is not believed")
    await cluster.up(missing_bookie)
    await until(lambda: "bookie not believed" in cluster.kinds() and writer.missing == (missing_bookie,))
    assert cluster.holders(writer.id, 2) >= {missing_bookie} and not pending.done()
    slow.release()
    assert await pending == 2


@pytest.mark.rule("P1")
async def test_p1_a_place_is_not_given_to_another_bookie_again_and_again(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers reads, so it seems to be back; but its acks would not count. The bookie itself gets its place."""
    writer, missing_bookie = await degraded(cluster)
    driver = writer._writers.context.driver
    creation, is_another = driver.bookie_creation, True

    async def who(bookie: str) -> int | None:
        return 10_000 if is_another and bookie == missing_bookie else await creation(bookie)

    monkeypatch.setattr(driver, "bookie_creation", who)
    impostor = cluster.bookies[missing_bookie]
    impostor.requests.clear()
    await cluster.up(missing_bookie)
    await until(lambda: sum(isinstance(request, v2.ReadFrame) for request in impostor.requests) >= 4)
    await writer.append(b"2")
    assert not any(isinstance(request, v2.AddFrame) for request in impostor.requests)
    assert cluster.kinds().count("bookie not believed") == 1
    assert (writer.missing, "ledger restored" in cluster.kinds()) == ((missing_bookie,), False)
    is_another = False
    await cluster.down(missing_bookie)
    await cluster.up(missing_bookie)
    await until(lambda: writer.missing == ())
    await writer.append(b"3")
    await until(lambda: missing_bookie in cluster.holders(writer.id, 3))
    await writer.close()


async def test_a_bug_in_a_round_is_said_and_does_not_end_the_rounds(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restorer, "FAILED_S", 0.01)
    writer, missing_bookie = await degraded(cluster)
    lives = writer._writers.restorer._lives

    async def bug(bookie: str) -> bool:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(writer._writers.restorer, "_lives", bug)
    await cluster.up(missing_bookie)
    await until(lambda: "degraded ledgers not restored" in cluster.kinds())
    assert writer.missing == (missing_bookie,)
    monkeypatch.setattr(writer._writers.restorer, "_lives", lives)
    await until(lambda: writer.missing == ())
    entry = await writer.append(b"all of them")
    await until(lambda: cluster.holders(writer.id, entry) == set(writer.metadata.ensemble))
    await writer.close()


def restoring() -> int:
    """How many loops look after degraded writers."""
    return sum("Restorer" in getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())


async def test_one_loop_looks_after_all_degraded_writers_of_a_client_and_ends_with_it(cluster: SmallCluster) -> None:
    client = cluster.client()
    writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=2) for _ in range(3)]
    missing_bookie = writers[0].metadata.ensemble[1]
    for writer in writers:
        await writer.append(b"0")
    await cluster.down(missing_bookie)

    async def goes_without(writer: LedgerWriter) -> bool:
        await writer.append(b"1")  # a loss that comes behind the quorum is looked at with the next one (Q7)
        return writer.missing == (missing_bookie,)

    for writer in writers:
        await until(partial(goes_without, writer))
        assert restoring() == 1
    await client.close()
    assert restoring() == 0


@pytest.mark.rule("Q8")
async def test_q8_who_loses_a_bookie_again_gets_it_back_again(cluster: SmallCluster) -> None:
    writer, missing_bookie = await degraded(cluster)
    for entry in range(2, 4):
        await cluster.up(missing_bookie)
        await until(lambda: writer.missing == ())
        await until(lambda: restoring() == 0)
        assert await writer.append(b"with it") == 2 * entry - 2
        await cluster.down(missing_bookie)
        assert await writer.append(b"without it") == 2 * entry - 1
        await until(lambda: writer.missing == (missing_bookie,))
    await writer.close()


@pytest.mark.rule("Q9")
async def test_q9_a_timer_that_comes_early_does_not_end_the_wait_for_a_quorum(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the loop and the one that is measured with need not agree."""
    writer = await cluster.client(no_quorum_s=0.05).create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"0")
    began, clock = time.monotonic(), writer._writers.context.clock
    monkeypatch.setattr(clock, "now", lambda: began + (time.monotonic() - began) / 4)
    await cluster.down(writer.metadata.ensemble[1])
    with pytest.raises(NotEnoughBookies, match=r"quorum could not be met"):
        await writer.append(b"1")
    await writer.close()


@pytest.mark.rule("Q9")
async def test_q9_the_wait_for_a_quorum_ends_with_its_writer(cluster: SmallCluster) -> None:
    """Else a writer that was stopped ends a second time, for another reason."""
    writer = await cluster.client(no_quorum_s=0.1).create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"0")
    missing_bookie = writer.metadata.ensemble[1]
    await cluster.down(missing_bookie)
    future = writer.append_nowait(b"1")
    await until(lambda: writer.missing == (missing_bookie,))
    writer.abort()
    with pytest.raises(LedgerClosed):
        await future
    await asyncio.sleep(0.3)
    assert "writer stopped" not in cluster.kinds()


def refusing(request: v2.Request) -> int | None:
    """As a bookie whose journal is sick, or that stores another ledger of the id: it answers, and takes no entry."""
    return Code.IO_ERROR if isinstance(request, v2.AddFrame) else None


@pytest.mark.rule("Q9")
@pytest.mark.parametrize("spares", [0, 2])
async def test_q9_bookies_that_answer_and_take_no_entry_end_the_writer_too(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, spares: int
) -> None:
    """Each try of one looks like an end of the shortage: the wait goes on until an entry was confirmed."""
    monkeypatch.setattr(degraded_, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(degraded_, "MAX_RETRY_S", 0.01)
    for _ in range(spares):
        await cluster.add()
    for bookie in cluster.bookies.values():
        bookie.misbehave = refusing
    writer = await cluster.client(no_quorum_s=0.3).create_ledger(3, write_quorum=3, ack_quorum=2)
    tries, began = 1, Shortage.began

    def counted(shortage: Shortage, cause: Exception) -> None:
        nonlocal tries
        tries += 1
        began(shortage, cause)

    monkeypatch.setattr(Shortage, "began", counted)
    with pytest.raises(NotEnoughBookies, match=r"quorum could not be met.*'b0': 'IO_ERROR'"):
        async with asyncio.timeout(10):
            await writer.append(b"0")
    assert cluster.kinds().count("ensemble changed") <= spares * tries, "they do not follow each other for ever"
    await writer.close()
    assert (writer.metadata.state, writer.metadata.last_entry) == (LedgerState.CLOSED, -1)


async def test_dead_bookies_in_each_others_places_restore_nothing_and_are_told_of_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead bookie stays registered for a while: the writer gives the place of one to the other, and tries again."""
    monkeypatch.setattr(degraded_, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(degraded_, "MAX_RETRY_S", 0.01)
    await cluster.add()
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=2, ack_quorum=2)
    spare = next(bookie for bookie in cluster.bookies if bookie not in writer.metadata.ensemble)
    dead = [spare, writer.metadata.ensemble[1]]
    for bookie in dead:
        await cluster.bookies[bookie].stop()
    futures = [writer.append_nowait(b"x") for _ in range(6)]
    await until(lambda: cluster.kinds().count("ensemble changed") >= 4)
    assert "ledger restored" not in cluster.kinds() and client.degraded_total <= 2
    told = [event.fields["missing"] for event in cluster.events if event.kind == "ledger degraded"]
    assert told and len(told) == len(set(told)) and {bookie for missing in told for bookie in missing} <= {*dead}
    await cluster.down(dead[0])
    await cluster.up(dead[0])
    assert [await future for future in futures] == list(range(6))
    assert cluster.kinds().count("ledger restored") == 1
    await writer.close()
