"""The writer over sockets, with bookies that misbehave on order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from support.fake_bookie import HANG, FakeBookie, Misbehave
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import writers
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import Fragment, LedgerState
from tallystick.errors import (
    LedgerClosed,
    LedgerFenced,
    MetadataError,
    NoSuchEntry,
    NotEnoughBookies,
    Unauthorized,
    UsageError,
)


@pytest.fixture(autouse=True, params=[128, 0], ids=["", "without sessions"])
def sessions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is idle may keep what it needs to send, or make it again."""
    monkeypatch.setattr(writers, "IDLE_SESSIONS", request.param)


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(4)
    yield made
    await made.close()


def member(cluster: SmallCluster, writer: LedgerWriter, slot: int) -> FakeBookie:
    return cluster.bookies[writer.metadata.ensemble[slot]]


def answering(code: int) -> Misbehave:
    return lambda request: code if isinstance(request, v2.AddFrame) else None


@pytest.mark.rule("Q1", "Q5")
async def test_q1_ids_are_dense_from_0_in_the_order_of_the_calls(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger() as writer:
        assert await writer.append(b"a") == 0
        futures = [writer.append_nowait(b"b"), writer.append_nowait(bytearray(b"c"))]
        assert await writer.append_batch([b"d", memoryview(b"e")]) == range(3, 5)
        assert [await future for future in futures] == [1, 2]
        assert await writer.append_batch([]) == range(0)
        assert (writer.lac, writer.length) == (4, 5)
    assert (writer.metadata.last_entry, writer.metadata.length) == (4, 5)


@pytest.mark.rule("Q4")
async def test_q4_entries_are_on_their_write_sets_and_nowhere_else(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=2, ack_quorum=2)
    await writer.append_batch([b"x"] * 30)
    places = writer.metadata.ensemble
    for entry in range(30):
        assert cluster.holders(writer.id, entry) == {places[entry % 3], places[(entry + 1) % 3]}


@pytest.mark.rule("Q5")
async def test_q5_futures_are_resolved_in_id_order(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(4, write_quorum=2, ack_quorum=2)
    done: list[int] = []
    slow = member(cluster, writer, 0)
    slow.held = []
    for _ in range(8):
        writer.append_nowait(b"x").add_done_callback(lambda future: done.append(future.result()))
    await until(lambda: len(slow.held or []) == 4)
    assert done == []
    slow.release()
    await writer.drain()
    await asyncio.sleep(0)
    assert done == list(range(8))


@pytest.mark.rule("Q6")
async def test_q6_entries_carry_the_lac_of_the_moment_they_are_sent(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    for _ in range(3):
        await writer.append(b"x")
    stored = member(cluster, writer, 0).entries
    assert [int.from_bytes(stored[writer.id, entry][16:24], "big", signed=True) for entry in range(3)] == [-1, 0, 1]
    assert (await cluster.client().ledger_metadata(writer.id)).last_entry == -1  # no metadata write per entry


@pytest.mark.rule("Q7", "Q8")
async def test_q7_a_killed_bookie_is_replaced_from_lac_plus_1(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
        await writer.append_batch([b"x"] * 5)
        before = writer.metadata.ensemble
        await cluster.down(before[1])
        assert await writer.append_batch([b"y"] * 5) == range(5, 10)
    first, second = writer.metadata.fragments
    assert (first, second.first) == (Fragment(0, before), 5)
    assert all(cluster.holders(writer.id, entry) >= set(second.bookies) for entry in range(5, 10))
    assert "ensemble changed" in cluster.kinds()


@pytest.mark.rule("Q7")
@pytest.mark.parametrize("code", [Code.IO_ERROR, Code.READ_ONLY, Code.BAD_REQUEST, Code.NO_LEDGER])
async def test_q7_any_answer_of_the_bookies_own_replaces_it_in_place(cluster: SmallCluster, code: int) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    bad = member(cluster, writer, 2)
    bad.misbehave = answering(code)
    assert await writer.append(b"x") == 0
    assert bad.id not in writer.metadata.ensemble and len(writer.metadata.fragments) == 1


@pytest.mark.rule("Q4", "Q7")
async def test_q7_a_bookie_that_failed_is_left_out_of_new_ledgers_for_a_while(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)
    failed = member(cluster, writer, 0)
    failed.misbehave = answering(Code.IO_ERROR)
    await writer.append(b"a")
    for _ in range(10):
        assert failed.id not in (await client.create_ledger(3)).metadata.ensemble


@pytest.mark.rule("Q7")
async def test_q7_a_time_out_replaces_the_bookie(cluster: SmallCluster) -> None:
    writer = await cluster.client(add_timeout_s=0.1).create_ledger(3, write_quorum=3, ack_quorum=3)
    bad = member(cluster, writer, 0)
    bad.misbehave = answering(HANG)
    assert await writer.append(b"x") == 0
    assert bad.id not in writer.metadata.ensemble


@pytest.mark.rule("Q7")
async def test_q7_a_failure_past_the_quorum_waits_for_the_next_append(cluster: SmallCluster) -> None:
    writer = await cluster.client(add_timeout_s=0.1).create_ledger(3, write_quorum=3, ack_quorum=2)
    bad = member(cluster, writer, 0)
    bad.misbehave = answering(HANG)
    assert await writer.append(b"x") == 0
    await until(lambda: bool(writer._session._core.failed_bookies if writer._session else writer._state.failed_bookies))
    assert bad.id in writer.metadata.ensemble
    assert await writer.append(b"y") == 1
    assert [fragment.first for fragment in writer.metadata.fragments] == [0, 1]
    assert bad.id not in writer.metadata.ensemble


async def test_a_late_answer_of_a_replaced_bookie_counts_no_more(cluster: SmallCluster) -> None:
    """The original tells attempts apart by address only."""
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    slow = member(cluster, writer, 0)
    spare = next(bookie for name, bookie in cluster.bookies.items() if name not in writer.metadata.ensemble)
    slow.held, spare.held = [], []
    slow.misbehave = lambda request: Code.IO_ERROR if isinstance(request, v2.AddFrame) and request.entry == 0 else None
    futures = [writer.append_nowait(b"x") for _ in range(2)]
    await until(lambda: len(slow.held or []) == 2)
    slow.held.pop(0)()  # the error for entry 0
    await until(lambda: len(spare.held or []) == 2)
    slow.release()  # "OK" for entry 1
    spare.held.pop(0)()
    assert await futures[0] == 0
    await asyncio.sleep(0.02)
    assert not futures[1].done()
    spare.release()
    assert await futures[1] == 1


@pytest.mark.rule("Q8")
async def test_q8_a_resend_has_the_bytes_of_the_first_send(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(3, write_quorum=3, ack_quorum=3)
    await writer.append(b"0")
    bad, good = member(cluster, writer, 0), member(cluster, writer, 1)
    bad.misbehave = answering(Code.IO_ERROR)
    await writer.append_batch([b"1", b"2"])
    new = member(cluster, writer, 0)
    assert new is not bad
    assert all(new.entries[writer.id, entry] == good.entries[writer.id, entry] for entry in (1, 2))


@pytest.mark.rule("Q8")
async def test_q8_the_change_is_decided_again_on_what_others_stored(cluster: SmallCluster) -> None:
    """Somebody moves an old fragment while the writer changes its ensemble: both edits stay."""
    writer = await cluster.client().create_ledger(2, write_quorum=2, ack_quorum=2)
    await writer.append(b"x")
    await cluster.down(writer.metadata.ensemble[0])
    assert await writer.append(b"y") == 1
    found = await cluster.driver.read_ledger(writer.id)
    old, new = found.value.fragments
    spare = next(name for name in cluster.bookies if name not in {*old.bookies, *new.bookies})
    moved = Fragment(0, (spare, old.bookies[1]))
    await cluster.driver.write_ledger(writer.id, replace(found.value, fragments=(moved, new)), found.version)
    await cluster.down(new.bookies[1])
    assert await writer.append(b"z") == 2
    assert writer.metadata.fragments == (moved, new, Fragment(2, (new.bookies[0], spare)))


@pytest.mark.rule("Q9")
@pytest.mark.parametrize("settings", [{"degraded_writes": False}, {"no_quorum_s": 0.05}])
async def test_q9_without_a_spare_bookie_the_writer_stops_and_can_be_closed(
    cluster: SmallCluster, settings: dict[str, Any]
) -> None:
    writer = await cluster.client(**settings).create_ledger(4, write_quorum=4, ack_quorum=4)
    await writer.append(b"x")
    gone = writer.metadata.ensemble[2]
    await cluster.down(gone)
    results = await asyncio.gather(*(writer.append(b"y") for _ in range(5)), return_exceptions=True)
    assert all(gone in str(result) for result in results)
    assert [type(result) for result in results] == [NotEnoughBookies] * 5
    for result in results:
        assert isinstance(result, NotEnoughBookies)
        assert result.ambiguous, "three bookies may have them, and recovery may keep them"
    with pytest.raises(LedgerClosed, match="this writer has ended") as refused:
        writer.append_nowait(b"z")
    assert not refused.value.ambiguous, "this one was never sent"
    assert not refused.value.retriable, "who tries again for as long as that is so would never end"
    with pytest.raises(LedgerClosed) as undrained:
        await writer.drain()
    assert undrained.value.ambiguous and not undrained.value.retriable
    await writer.close()
    assert (writer.metadata.state, writer.metadata.last_entry) == (LedgerState.CLOSED, 0)


@pytest.mark.rule("Q7", "Q9")
async def test_q9_a_wrong_key_changes_no_ensemble(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    for bookie in cluster.bookies.values():
        bookie.fence(writer.id, b"somebody else's")
    with pytest.raises(Unauthorized):
        await writer.append(b"x")
    assert len((await cluster.driver.read_ledger(writer.id)).value.fragments) == 1


@pytest.mark.rule("Q9")
async def test_q9_metadata_that_cannot_be_written_stops_the_writer(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=3)

    async def lost(*_: object, **more: object) -> int:
        raise MetadataError("the connection is gone")

    with monkeypatch.context() as patch:
        patch.setattr(client.context.driver, "write_ledger", lost)
        await cluster.down(writer.metadata.ensemble[0])
        with pytest.raises(MetadataError, match="the connection is gone"):
            await writer.append(b"x")
    await writer.close()
    assert writer.metadata.last_entry == -1


@pytest.mark.rule("Q11")
@pytest.mark.parametrize("state", ["in recovery", "closed"])
async def test_q11_a_fenced_writer_withdraws_and_leaves_the_metadata_alone(cluster: SmallCluster, state: str) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"x")
    if state == "closed":
        await cluster.client(2).open_ledger(writer.id, recover=True)
    else:
        found = await cluster.driver.read_ledger(writer.id)
        await cluster.driver.write_ledger(writer.id, found.value.in_recovery(), found.version)
        for bookie in cluster.bookies.values():
            bookie.fence(writer.id)
    before = await cluster.driver.read_ledger(writer.id)
    futures = [writer.append_nowait(b"y") for _ in range(3)]
    for future in futures:
        with pytest.raises(LedgerFenced) as caught:
            await future
        assert caught.value.ambiguous
    for _ in range(2):
        with pytest.raises(LedgerFenced):
            await writer.close()
    assert await cluster.driver.read_ledger(writer.id) == before


@pytest.mark.rule("Q11")
async def test_q11_an_idle_writer_learns_at_close_that_it_was_fenced(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"x")
    found = await cluster.driver.read_ledger(writer.id)
    await cluster.driver.write_ledger(writer.id, found.value.in_recovery(), found.version)
    with pytest.raises(LedgerFenced):
        await writer.close()
    assert (await cluster.driver.read_ledger(writer.id)).value.state is LedgerState.IN_RECOVERY


@pytest.mark.rule("Q16")
async def test_q16_a_close_that_another_client_stored_alike_is_a_success(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append(b"xyz")
    found = await cluster.driver.read_ledger(writer.id)
    await cluster.driver.write_ledger(writer.id, found.value.closed(0, 3), found.version)
    await writer.close()
    assert writer.metadata.is_closed


async def test_close_waits_for_what_is_under_way_and_refuses_the_rest(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    slow = [cluster.bookies[name] for name in writer.metadata.ensemble]
    for bookie in slow:
        bookie.held = []
    future = writer.append_nowait(b"x")
    closing = [asyncio.ensure_future(writer.close()) for _ in range(2)]
    await until(lambda: sum(len(bookie.held or []) for bookie in slow) == 2)
    with pytest.raises(LedgerClosed):
        writer.append_nowait(b"y")
    for bookie in slow:
        bookie.release()
    await asyncio.gather(*closing)
    assert future.result() == 0 and writer.metadata.last_entry == 0
    with pytest.raises(LedgerClosed):
        await writer.append(b"y")
    await writer.drain()


async def test_an_exception_in_the_body_is_not_hidden_by_the_close(cluster: SmallCluster) -> None:
    with pytest.raises(ZeroDivisionError):
        async with cluster.client().create_ledger() as writer:
            for bookie in cluster.bookies.values():
                bookie.fence(writer.id)
            writer.append_nowait(b"x").add_done_callback(lambda future: future.exception())
            raise ZeroDivisionError


async def test_a_stopped_writer_fails_what_is_pending_and_stores_nothing(cluster: SmallCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger()
    for bookie in cluster.bookies.values():
        bookie.held = []
    future = writer.append_nowait(b"x")
    await client.close()
    with pytest.raises(LedgerClosed, match="client was closed before the entry was confirmed") as pending:
        await future
    assert pending.value.ambiguous and not pending.value.retriable
    with pytest.raises(LedgerClosed, match="the end of its ledger is not stored"):
        await writer.close()
    assert (await cluster.driver.read_ledger(writer.id)).value.state is LedgerState.OPEN


async def test_a_payload_that_is_too_long_gets_no_id(cluster: SmallCluster) -> None:
    writer = await cluster.client(max_frame_bytes=200).create_ledger()
    assert writer.max_payload_bytes == 200 - 60
    with pytest.raises(UsageError, match="bytes=141 max_bytes=140"):
        await writer.append(b"x" * 141)
    with pytest.raises(UsageError):
        await writer.append_batch([b"x", b"x" * 141])
    assert await writer.append(b"x" * 140) == 0


async def test_the_default_limit_is_what_an_original_bookie_accepts(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger(1, write_quorum=1, ack_quorum=1)
    await writer.append(b"x" * writer.max_payload_bytes)
    (request,) = [r for r in member(cluster, writer, 0).requests if isinstance(r, v2.AddFrame)]
    assert len(request.encode()) == 5 * 1024 * 1024  # the limit there counts the length field


async def test_bytes_in_flight_hold_appends_back(cluster: SmallCluster) -> None:
    writer = await cluster.client(max_inflight_bytes=1000).create_ledger()
    bookies = [cluster.bookies[name] for name in writer.metadata.ensemble]
    for bookie in bookies:
        bookie.held = []
    appends = [asyncio.ensure_future(writer.append(b"x" * 300)) for _ in range(20)]
    cancelled = appends[10]
    await until(lambda: sum(len(bookie.held or []) for bookie in bookies) == 8)
    assert writer._session is not None and writer._session._next == 4
    cancelled.cancel()
    for bookie in bookies:
        bookie.release()
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert sorted(result for result in results if isinstance(result, int)) == list(range(19))


async def test_who_waits_for_room_hears_of_the_failure(cluster: SmallCluster) -> None:
    writer = await cluster.client(max_inflight_bytes=100).create_ledger()
    for bookie in cluster.bookies.values():
        bookie.fence(writer.id)
    results = await asyncio.gather(*(writer.append(b"x" * 100) for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [LedgerFenced] * 5


async def test_a_refused_append_passes_the_room_on(cluster: SmallCluster) -> None:
    writer = await cluster.client(max_inflight_bytes=100, max_frame_bytes=200).create_ledger()
    for bookie in cluster.bookies.values():
        bookie.held = []
    sizes = [100, 141, 100]
    appends = [asyncio.ensure_future(writer.append(b"x" * size)) for size in sizes]
    await until(lambda: sum(len(bookie.held or []) for bookie in cluster.bookies.values()) == 2)
    for bookie in cluster.bookies.values():
        bookie.release()
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert [result if isinstance(result, int) else type(result) for result in results] == [0, UsageError, 1]


@pytest.mark.rule("Q17")
async def test_q17_the_writer_reads_its_open_ledger_up_to_its_lac(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append_batch([b"%d" % number for number in range(10)])
    assert [entry.data async for entry in writer.read(8, 9)] == [b"8", b"9"]
    with pytest.raises(NoSuchEntry):
        writer.read(0, 10)


@pytest.mark.rule("P1", "P4")
@pytest.mark.parametrize("seed", range(6))
async def test_random_faults_lose_nothing_that_was_acknowledged(seed: int) -> None:
    print(f"seed={seed}")
    chance = random.Random(seed)
    cluster = await SmallCluster().start(6)
    try:
        write = chance.randint(2, 3)
        writer = await cluster.client(seed, add_timeout_s=0.3).create_ledger(
            3, write_quorum=write, ack_quorum=2, digest="crc32"
        )
        acked: list[int] = []
        for round_ in range(6):
            victim = cluster.bookies[chance.choice(sorted(cluster.bookies))]
            fault = chance.choice(["error", "hang", "heal"])
            faulty = [bookie for bookie in cluster.bookies.values() if bookie.misbehave]
            if fault == "heal" or len(faulty) >= 2:
                for bookie in faulty:
                    bookie.misbehave = None
            else:
                victim.misbehave = answering(Code.IO_ERROR if fault == "error" else HANG)
            acked += await writer.append_batch([b"%d/%d" % (round_, n) for n in range(chance.randint(1, 40))])
        assert acked == list(range(len(acked)))
        await writer.close()
        for bookie in cluster.bookies.values():
            bookie.misbehave = None
        for entry in acked:
            assert len(cluster.holders(writer.id, entry) & set(writer.metadata.ensemble_of(entry))) >= 2
        reader = await cluster.client().open_ledger(writer.id)
        assert [entry.id async for entry in reader.read(0, reader.last_entry)] == acked
    finally:
        await cluster.close()
