"""What a writer holds for bookies that are behind: counted, in memory once, and bounded; over sockets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest

from support.fake_bookie import FakeBookie
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.ledger.identity import Belief
from tallystick.bookkeeper.ledger.replicas import Replicas
from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import Digest
from tallystick.bookkeeper.wire.values import DigestType
from tallystick.codec.frames import encode_adds

ENTRY = 64 * 1024
BOUND = 1024 * 1024
MANY = 48 * 1024 * 1024 // ENTRY  # more than a connection's buffers take


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def with_one_stopped(cluster: SmallCluster, **settings: Any) -> tuple[LedgerWriter, FakeBookie]:
    """A ledger of three bookies that needs two acks; the third has stopped to read what it is sent."""
    client = cluster.client(max_inflight_bytes=BOUND, **settings)
    writer = await client.create_ledger(3, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    stopped = cluster.bookies[writer.metadata.ensemble[2]]
    await until(lambda: stopped.id in cluster.holders(writer.id, 0))
    for transport in stopped.connections:
        transport.pause_reading()
    for name in writer.metadata.ensemble[:2]:
        cluster.bookies[name].script = take  # megabytes that nobody reads
    return writer, stopped


def take(request: v2.Request) -> bytes:
    assert isinstance(request, v2.AddFrame)
    return v2.encode_response(request, Code.OK)


async def append_all(writer: LedgerWriter, payload: bytes) -> None:
    for _ in range(MANY):
        await writer.append(payload)


def held_bytes(writer: LedgerWriter) -> int:
    session = writer._session
    return session._pending.inflight_bytes + session._replicas.lagging_bytes if session is not None else 0


def is_full(writer: LedgerWriter) -> bool:
    return writer._session is not None and writer._session._is_full()


def has_filled(writer: LedgerWriter) -> bool:
    """What the bookie that is behind lacks is all that is held."""
    return is_full(writer) and writer._session is not None and not writer._session._pending


def queues(writer: LedgerWriter) -> list[list[Any]]:
    """What the connections to its bookies hold."""
    peers = writer._writers.context.bookies._peers
    links = [peers[bookie, 0]._link for bookie in writer.metadata.ensemble]
    return [link._out.parts for link in links if link is not None]


async def test_the_writer_waits_for_a_bookie_that_is_behind_and_holds_a_payload_once(cluster: SmallCluster) -> None:
    writer, stopped = await with_one_stopped(cluster)
    payload = bytes(ENTRY)
    appends = asyncio.create_task(append_all(writer, payload))
    await until(lambda: has_filled(writer))
    assert not appends.done()
    assert BOUND <= held_bytes(writer) < BOUND + 2 * ENTRY
    [queue] = [queue for queue in queues(writer) if queue]
    assert sum(part is payload for part in queue) >= BOUND // ENTRY - 2, "the payload itself, and no copy of it"
    assert sum(map(len, queue)) <= held_bytes(writer) + 1024 * 1024
    assert "bookie failed" not in cluster.kinds()  # bytes alone are no failure
    for transport in stopped.connections:
        transport.resume_reading()
    await appends
    await until(lambda: held_bytes(writer) == 0)
    assert writer.missing == () and len(writer.metadata.fragments) == 1
    await writer.close()
    await until(lambda: len(stopped.entries) == MANY + 1)


async def test_a_striped_ledger_holds_short_payloads_once_too(cluster: SmallCluster) -> None:
    """Short parts are joined for a bookie that takes them, as that is quicker, and not for one that is behind."""
    await cluster.add()
    writer = await cluster.client().create_ledger(4, write_quorum=3, ack_quorum=2)
    await writer.append(b"0")
    stopped = writer.metadata.ensemble[2]
    link = writer._writers.context.bookies._peers[stopped, 0]._link
    assert link is not None
    link.pause_writing()
    payload = bytes(100)
    for _ in range(400):
        writer.append_nowait(payload)
    await until(lambda: writer.lac == 400)
    queue = link._out.parts
    assert sum(part is payload for part in queue) == 300, "the payloads themselves, of three entries in four"
    link.resume_writing()
    await until(lambda: held_bytes(writer) == 0)
    await until(lambda: len(cluster.bookies[stopped].entries) >= 300)
    await writer.close()


async def test_a_bookie_that_stays_behind_fails_by_its_time_out_and_holds_nothing_up(cluster: SmallCluster) -> None:
    writer, stopped = await with_one_stopped(cluster, add_timeout_s=0.5, read_timeout_s=0.5)
    await append_all(writer, bytes(ENTRY))
    degraded = next(event for event in cluster.events if event.kind == "ledger degraded")
    assert degraded.fields["missing"] == (stopped.id,)
    await writer.close()
    assert held_bytes(writer) == 0


async def test_what_a_closed_writer_left_in_a_queue_goes_when_the_bookie_is_silent_for_long(
    cluster: SmallCluster,
) -> None:
    writer, _ = await with_one_stopped(cluster, add_timeout_s=1.0)
    for _ in range(MANY):
        writer.append_nowait(bytes(ENTRY))
    await writer.close()
    await until(lambda: not any(queues(writer)))
    assert "the bookie is silent" in {event.fields.get("reason") for event in cluster.events}


async def test_drain_waits_for_room_too_and_close_does_not(cluster: SmallCluster) -> None:
    writer, _ = await with_one_stopped(cluster)
    for _ in range(MANY):  # as a program that appends without waiting does
        writer.append_nowait(bytes(ENTRY))
    draining = asyncio.create_task(writer.drain())
    await until(lambda: writer.lac == MANY)
    assert is_full(writer) and not draining.done()
    await writer.close()
    assert writer.metadata.last_entry == MANY
    await draining


class Slow:
    """A connection's queue, and what waits in it."""

    def __init__(self) -> None:
        self.is_held, self.written = True, list[Callable[[], None]]()

    def when_written(self, callback: Callable[[], None]) -> None:
        self.written.append(callback)

    def writes(self) -> None:
        self.is_held = False
        while self.written:
            self.written.pop()()


class SlowBookies:
    """One channel, which takes nothing by itself; who hears of its replicas."""

    blocked, number = True, 1

    def __init__(self) -> None:
        self.belief = Belief()
        self.queued, self.moves = list[Slow](), 0

    def adds(self, *_: object) -> SlowBookies:
        return self

    def send(self, entries: Sequence[int], pieces: object) -> Slow:
        self.queued.append(Slow())
        return self.queued[-1]

    def moved(self) -> None:
        self.moves += 1

    def close(self) -> None:
        for queued in self.queued:
            queued.is_held = False


def send_one(replicas: Replicas, entry: int) -> None:
    digest = Digest.of(DigestType.CRC32C, b"")
    frames, _ = encode_adds(b"", 1, entry, -1, 0, [b"payload"], digest.compute, digest.size)
    replicas.send(entry, frames, 10)


def lagging(slow: SlowBookies) -> Replicas:
    """Three entries of 10 bytes, confirmed and not written."""
    replicas = Replicas(cast("Any", slow), 1, Striping(1, 1, 1), ("b1",), cast("Any", slow))
    for entry in range(3):
        send_one(replicas, entry)
    replicas.confirmed(2)
    return replicas


def test_each_of_several_that_lag_is_let_go_when_it_was_written() -> None:
    """A writer that waits for room asks for nothing more in between."""
    slow = SlowBookies()
    replicas = lagging(slow)
    for moves, queued in enumerate(slow.queued):
        assert (replicas.lagging_bytes, slow.moves) == (30 - 10 * moves, moves)
        queued.writes()
    assert (replicas.lagging_bytes, slow.moves) == (0, 3)


def test_what_lags_for_a_place_that_is_given_up_is_let_go_at_once() -> None:
    """The connection, which others use too, may stand still for long."""
    replicas = lagging(SlowBookies())
    assert replicas.lagging_bytes == 30
    replicas.suspend(0)
    assert replicas.lagging_bytes == 0


@pytest.mark.rule("P1")
def test_p1_who_was_met_in_a_place_is_known_while_nothing_is_sent_to_it() -> None:
    """Nobody asked when it was chosen: the one that was met first has what was acknowledged."""
    bookies = SlowBookies()
    replicas = lagging(bookies)
    assert replicas.believes("b1", 7) and replicas.believes("b1", 8)
    bookies.belief.linked()
    bookies.belief.identified(7)
    for _ in range(2):
        assert replicas.believes("b1", 7) and not replicas.believes("b1", 8)
        replicas.suspend(0)
    replicas.resume(0)
    assert replicas.believes("b1", 7) and not replicas.believes("b1", 8)


async def test_a_bookie_that_was_replaced_holds_nobody_up(cluster: SmallCluster) -> None:
    writer, stopped = await with_one_stopped(cluster)
    appends = asyncio.create_task(append_all(writer, bytes(ENTRY)))
    await until(lambda: has_filled(writer))
    await cluster.add()
    assert writer._session is not None
    writer._session.add_failed(2, [writer.lac], None)  # found out by some other way
    await appends
    assert stopped.id not in writer.metadata.ensemble
    await writer.close()


class Numbers:
    """Bookies that give each channel the number that is asked for, or the next one."""

    def __init__(self) -> None:
        self.given, self.fresh = list[tuple[str, int]](), itertools.count(1)

    def adds(self, bookie: str, ledger: int, listener: object, slot: int, belief: Belief, number: int | None) -> object:
        slow = SlowBookies()
        slow.number = next(self.fresh) if number is None else number
        self.given.append((bookie, slow.number))
        return slow


async def test_the_first_channels_of_a_ledger_have_one_number_and_later_ones_another() -> None:
    """What one connection sends twice is told apart by it; what several send is encoded once."""
    bookies = Numbers()
    replicas = Replicas(cast("Any", bookies), 1, Striping(3, 3, 2), ("b1", "b2", "b3"), cast("Any", SlowBookies()))
    send_one(replicas, 0)
    assert bookies.given == [("b1", 1), ("b2", 1), ("b3", 1)]
    replicas.resume(1)
    replicas.replace(("b4", "b2", "b3"))
    send_one(replicas, 1)
    assert bookies.given[3:] == [("b2", 2), ("b4", 3)]
