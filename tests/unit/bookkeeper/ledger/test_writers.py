"""Writers without a session: they go on as if they had kept it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger import placement
from tallystick.bookkeeper.ledger import writers as writers_module
from tallystick.bookkeeper.ledger.add import AddCore, Confirm, Replace, Send
from tallystick.bookkeeper.ledger.context import LedgerContext
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.ledger.writers import Writers
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.errors import LedgerClosed, LedgerFenced, UsageError
from tallystick.runtime.events import Events


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    """Of whose writers one at most keeps its session while it is idle."""
    monkeypatch.setattr(writers_module, "IDLE_SESSIONS", 1)
    made = await SmallCluster().start(4)
    yield made
    await made.close()


async def two(client: BookKeeper, ensemble: int, write: int, ack: int, digest: str = "crc32c") -> list[LedgerWriter]:
    return [
        await client.create_ledger(ensemble, write_quorum=write, ack_quorum=ack, digest=digest, password=b"secret")
        for _ in range(2)
    ]


def asleep(writer: LedgerWriter) -> Callable[[], bool]:
    return lambda: writer._session is None


@pytest.mark.parametrize("digest", ["crc32", "crc32c", "mac", "dummy"])
async def test_a_writer_goes_on_where_it_was(cluster: SmallCluster, digest: str) -> None:
    client = cluster.client()
    writers = await two(client, 3, 2, 2, digest=digest)
    kept = [writer.metadata for writer in writers]
    for entry in range(4):
        for writer in writers:
            assert await writer.append(b"%d" % entry * 10) == entry
            assert (writer.lac, writer.length) == (entry, 10 * (entry + 1))
        await until(asleep(writers[0]))  # since the other has become idle after it
    assert [writer.metadata for writer in writers] == kept
    assert [entry.id async for entry in writers[0].read(0, 3)] == [0, 1, 2, 3]
    await writers[0].close()
    reader = await client.open_ledger(writers[0].id, password=b"secret")
    assert [entry.data async for entry in reader.read(0, 3)] == [b"%d" % entry * 10 for entry in range(4)]
    assert (reader.metadata.last_entry, reader.metadata.length) == (3, 40)


async def test_a_writer_of_which_one_bookie_is_late_is_idle_when_that_has_answered(cluster: SmallCluster) -> None:
    """Of each of thousands the session was kept, until it appended again."""
    first, second = await two(cluster.client(), 3, 3, 2)
    late = cluster.bookies[first.metadata.ensemble[2]]
    late.held = []
    for writer in (first, second):
        await writer.append(b"a")
    await asyncio.sleep(1)
    assert not asleep(first)(), "it may have to be replaced"
    late.release()
    await until(asleep(first))


async def test_the_sessions_that_were_used_last_are_kept(cluster: SmallCluster) -> None:
    first, second = await two(cluster.client(), 3, 3, 3)
    await first.append(b"a")
    session = first._session
    for _ in range(3):
        await first.append(b"a")
    assert first._session is session is not None
    await second.append(b"b")
    await until(asleep(first))
    assert second._session is not None


async def test_a_writer_with_something_under_way_keeps_its_session(cluster: SmallCluster) -> None:
    """An answer that no entry needs is waited for as well."""
    first, second = await two(cluster.client(), 3, 3, 2)
    silent = cluster.bookies[first.metadata.ensemble[0]]
    silent.misbehave = lambda request: HANG if isinstance(request, v2.AddFrame) and request.ledger == first.id else None
    await first.append(b"a")
    for _ in range(3):
        await second.append(b"b")
    assert first._session is not None


@pytest.mark.rule("Q7")
async def test_q7_who_did_not_give_an_answer_that_no_entry_needs_is_replaced_at_the_next_append(
    cluster: SmallCluster,
) -> None:
    first, second = await two(cluster.client(add_timeout_s=0.2), 3, 3, 2)
    silent = cluster.bookies[first.metadata.ensemble[0]]
    silent.misbehave = lambda request: HANG if isinstance(request, v2.AddFrame) and request.ledger == first.id else None
    await first.append(b"a")
    await until(lambda: first._session is None or bool(first._session._core._failed_bookies))
    await second.append(b"b")
    await until(asleep(first))  # nothing is under way any more; the failure is not forgotten
    assert len(first.metadata.fragments) == 1
    await first.append(b"a")
    assert [fragment.first for fragment in first.metadata.fragments] == [0, 1]
    assert silent.id not in first.metadata.ensemble
    await second.append(b"b")
    await until(asleep(first))
    await first.append(b"a")
    assert silent.id not in cluster.holders(first.id, 2), "the ensemble was changed for good"
    await first.close()
    assert first.metadata.last_entry == 2 and len(first.metadata.fragments) == 2


@pytest.mark.rule("Q7")
async def test_q7_many_writers_sleep_after_a_bookie_stalled_once_and_replace_it_when_they_append(
    cluster: SmallCluster,
) -> None:
    """They kept their sessions until each appended again: 3,000 of them, where one may."""
    client = cluster.client(add_timeout_s=0.2)
    writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=2) for _ in range(20)]
    silent = cluster.bookies["b0"]
    silent.misbehave = lambda request: HANG if isinstance(request, v2.AddFrame) else None
    await asyncio.gather(*(writer.append(b"a") for writer in writers))
    await until(lambda: sum(writer._session is not None for writer in writers) <= 1)
    concerned = [writer for writer in writers if "b0" in writer.metadata.ensemble]
    assert concerned and all(len(writer.metadata.fragments) == 1 for writer in writers)
    silent.misbehave = None
    await asyncio.gather(*(writer.append(b"b") for writer in writers))
    for writer in concerned:
        assert "b0" not in writer.metadata.ensemble
        assert [fragment.first for fragment in writer.metadata.fragments] == [0, 1]
        assert (
            set(writer.metadata.ensemble) <= cluster.holders(writer.id, 1) and len(cluster.holders(writer.id, 0)) == 2
        )
    for writer in writers:
        await writer.close()
        assert writer.metadata.last_entry == 1


async def test_a_degraded_writer_keeps_its_session(cluster: SmallCluster) -> None:
    first, second = await two(cluster.client(), 4, 4, 3)
    await cluster.down("b3")
    await first.append(b"a")
    await until(lambda: first.missing == ("b3",))
    for _ in range(3):
        await first.append(b"a")
        await second.append(b"b")
    assert first.missing == second.missing == ("b3",)


async def test_another_bookie_at_an_old_address_is_not_believed_after_a_sleep(cluster: SmallCluster) -> None:
    for name in cluster.bookies:
        await cluster.driver.write_cookie(name, b"the first of this name", None)
    first, second = await two(cluster.client(), 3, 3, 3)
    for writer in (first, second):
        await writer.append(b"x")
    await until(asleep(first))
    place = first.metadata.ensemble[0]
    await cluster.down(place)
    cookie = await cluster.driver.read_cookie(place)
    assert cookie is not None
    await cluster.driver.delete_cookie(place, cookie.version)
    await cluster.driver.write_cookie(place, b"the second", None)
    await cluster.up(place)
    await first.append(b"y")
    assert place not in first.metadata.ensemble
    assert any(event.kind == "bookie not believed" and event.fields["ledger"] == first.id for event in cluster.events)


async def test_a_writer_that_was_fenced_in_its_sleep_learns_it_at_the_next_append(cluster: SmallCluster) -> None:
    client = cluster.client()
    first, second = await two(client, 3, 2, 2)
    for writer in (first, second):
        await writer.append(b"x")
    await until(asleep(first))
    await cluster.client(2).open_ledger(first.id, password=b"secret", recover=True)
    with pytest.raises(LedgerFenced):
        await first.append(b"y")
    with pytest.raises(LedgerFenced):
        await first.close()


async def test_a_block_may_stop_its_writer(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger() as writer:
        await writer.append(b"x")
        for bookie in cluster.bookies.values():
            bookie.held = []
        sent = writer.append_nowait(b"y")
        await until(lambda: any(bookie.held for bookie in cluster.bookies.values()))
        unsent = writer.append_nowait(b"z")
        writer.abort()
        for pending, ambiguous in ((sent, True), (unsent, False)):
            with pytest.raises(LedgerClosed, match="was stopped before the entry was confirmed") as unconfirmed:
                await pending
            assert (unconfirmed.value.ambiguous, unconfirmed.value.retriable) == (ambiguous, False)
        with pytest.raises(LedgerClosed, match="was stopped") as refused:
            await writer.append(b"z")
        assert not refused.value.ambiguous
    assert (await cluster.driver.read_ledger(writer.id)).value.state is LedgerState.OPEN


async def test_a_block_whose_client_was_closed_tells_of_what_was_not_confirmed(cluster: SmallCluster) -> None:
    """Nobody looks at the futures of some programs: the end of the block must not look like that of a closed ledger."""
    client = cluster.client()
    with pytest.raises(LedgerClosed, match="the end of its ledger is not stored"):
        async with client.create_ledger() as writer:
            for bookie in cluster.bookies.values():
                bookie.held = []
            future = writer.append_nowait(b"x")
            await client.close()
    with pytest.raises(LedgerClosed, match="client was closed"):
        await future


async def test_a_closed_client_stops_writers_without_a_session_too(cluster: SmallCluster) -> None:
    client = cluster.client()
    first, second = await two(client, 3, 2, 2)
    for writer in (first, second):
        await writer.append(b"x")
    await until(asleep(first))
    ids = [writer.id for writer in (first, second)]
    await client.close()
    for writer in (first, second):
        assert "stopped" in repr(writer)
        with pytest.raises(UsageError, match="client is closed"):
            await writer.append(b"y")
        with pytest.raises(UsageError, match="client is closed") as undrained:
            await writer.drain()
        assert undrained.value.ambiguous, "what was appended may be stored"
        with pytest.raises(LedgerClosed, match="stopped"):
            await writer.close()
        assert (writer.lac, writer.length) == (0, 1)
    for ledger in ids:
        assert (await cluster.driver.read_ledger(ledger)).value.state is LedgerState.OPEN


async def test_a_closed_or_stopped_writer_has_no_session_to_drop(cluster: SmallCluster) -> None:
    client = cluster.client()
    writers = [await client.create_ledger(3, write_quorum=3, ack_quorum=3) for _ in range(4)]
    await asyncio.gather(*(writer.append(b"x") for writer in writers))
    await writers[0].close()
    writers[1].abort()
    await writers[2].append(b"y")
    await writers[3].append(b"y")
    await until(lambda: sum(writer._session is not None for writer in writers[2:]) == 1)
    assert writers[0].metadata.last_entry == 0
    shared = writers[0]._writers
    assert len(shared._with_session) == len(shared._idle) == 1


class Owner:
    """A writer that counts how often it is told to drop its session."""

    def __init__(self) -> None:
        self.dropped = 0

    def drop_session(self) -> None:
        self.dropped += 1

    def abort(self) -> None:
        """The client was closed."""

    def explicit_lac(self) -> None:
        """It has none to tell."""


@pytest.mark.parametrize("left", ["ended", "ended, told late", "busy"])
async def test_who_is_not_idle_takes_no_place_of_those_that_are(cluster: SmallCluster, left: str) -> None:
    writers = cluster.client()._writers
    gone, idle, later = Owner(), Owner(), Owner()
    writers.began(gone)
    writers.idle(gone)
    writers.busy(gone) if left == "busy" else writers.ended(gone)
    if left == "ended, told late":
        writers.idle(gone)
    writers.began(idle)
    writers.idle(idle)
    assert (gone.dropped, idle.dropped) == (0, 0)
    writers.began(later)
    writers.idle(later)
    assert (gone.dropped, idle.dropped, later.dropped) == (0, 1, 0)


async def test_waiting_for_room_outlasts_the_close(cluster: SmallCluster) -> None:
    """All who wait are woken, not only the first of them."""
    writer = await cluster.client(max_inflight_bytes=100).create_ledger(3, write_quorum=3, ack_quorum=3)
    held = cluster.bookies[writer.metadata.ensemble[0]]
    held.held = []
    appends = [asyncio.ensure_future(writer.append(b"x" * 100)) for _ in range(4)]
    await until(lambda: bool(held.held))
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0)
    held.release()
    await closing
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert results[0] == 0 and all(isinstance(result, Exception) for result in results[1:])


@pytest.mark.rule("Q8")
async def test_q8_a_bookie_lost_to_many_ledgers_is_replaced_in_some_of_them_at_a_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "CHANGES_AT_ONCE", 20)
    client = cluster.client()
    writers = await asyncio.gather(*(client.create_ledger(3, write_quorum=2, ack_quorum=2) for _ in range(300)))
    await asyncio.gather(*(writer.append(b"x") for writer in writers))
    under_way, most = 0, 0
    write = cluster.driver.write_ledger

    async def counted(*arguments: Any, **more: Any) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await write(*arguments, **more)
        finally:
            under_way -= 1

    monkeypatch.setattr(type(cluster.driver), "write_ledger", lambda _, *arguments, **more: counted(*arguments, **more))
    await cluster.bookies["b0"].stop()
    await asyncio.gather(*(writer.append_batch([b"y"] * 3) for writer in writers))
    assert 1 < most <= 20
    assert not any("b0" in writer.metadata.ensemble for writer in writers)
    monkeypatch.undo()
    await asyncio.gather(*(writer.close() for writer in writers))


@pytest.mark.rule("Q7")
def test_q7_what_failed_past_its_quorum_is_known_to_the_next_core() -> None:
    adds = AddCore(Striping(3, 3, 2), ("a", "b", "c"))
    adds.append(2)
    adds.acked(0, 0, 1)
    adds.acked(1, 0, 1)
    assert adds.failed(2, 1) == []
    assert adds.is_quiet and adds.failed_bookies == ("c",)
    later = AddCore(adds.striping, adds.ensemble, adds.lac, adds.failed_bookies)
    assert later.is_quiet
    assert later.append(1) == adds.append(1) == [Replace(("c",), first=2), Send(2, 2)]
    assert not later.is_quiet
    assert [later.acked(slot, 2, 2) for slot in (0, 1)] == [[], []]  # nothing is confirmed during the change
    assert Confirm(2) in later.ensemble_changed(("a", "b", "d"))
    assert later.is_quiet and later.failed_bookies == ()


def test_a_core_without_a_replacement_is_not_quiet() -> None:
    adds = AddCore(Striping(3, 3, 2), ("a", "b", "c"), 4, ("c",))
    adds.append(1)
    adds.no_replacement()
    adds.acked(0, 5, 5)
    assert adds.acked(1, 5, 5) == [Confirm(5)]
    assert not adds.is_quiet and adds.missing_bookies == ("c",)


class Appended:
    """A session that sends nothing."""

    def __init__(self, sent: list[Appended], failure: Exception | None = None) -> None:
        self._sent, self._failure = sent, failure

    def flush(self) -> None:
        self._sent.append(self)
        if self._failure is not None:
            raise self._failure


async def test_what_many_ledgers_were_appended_leaves_in_parts_and_one_that_fails_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers_module, "SESSIONS_A_TURN", 2)
    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    unused = cast("Any", None)
    context = LedgerContext(unused, unused, unused, unused, ClientSettings(), Events())
    writers, sent, failure = Writers(context, unused, unused), list[Appended](), OSError()
    appended = [Appended(sent, failure if place == 2 else None) for place in range(6)]
    for session in appended:
        writers.flush_soon(session)
    for so_far in (2, 3, 5, 6, 6):  # of the second two the first one failed: the other goes with the next
        await asyncio.sleep(0)
        assert sent == appended[:so_far]
    assert failures == [failure]
