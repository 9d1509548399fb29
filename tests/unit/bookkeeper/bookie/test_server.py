"""A port with many peers, some of them rude."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest

from support.bookies import KEY, Home, Peer, SpyDisk, adds, codes, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie import server
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.committer import Committer
from tallystick.bookkeeper.bookie.server import BookieServer
from tallystick.bookkeeper.bookie.session import Session
from tallystick.bookkeeper.bookie.turns import Kind
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.budget import CloseReason

MIB = 1024 * 1024


async def test_answers_of_one_connection_and_of_many(bookie: Bookie) -> None:
    async def write(ledger: int) -> list[int]:
        async with talking(bookie) as peer:
            peer.writer.write(adds(ledger, range(500)))
            data = await peer.reader.readexactly(500 * 28)
            return [entry for _, code, found, entry in codes(data) if (code, found) == (Code.OK, ledger)]

    assert await asyncio.gather(*map(write, range(8))) == [list(range(500))] * 8
    assert bookie.counts.adds == 4000
    assert bookie.counts.commits < 400


async def test_garbage_closes_its_connection_and_no_other_and_is_told_once(home: Home, bookie: Bookie) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    async with talking(bookie) as good:
        for _ in range(100):
            async with talking(bookie) as bad:
                size = chance.choice((8, 30, 200))
                bad.writer.write(size.to_bytes(4, "big") + b"\x02\x09" + chance.randbytes(size - 2))
                assert await bad.frame() is None
        assert await good.code(adds(1, [0])) == Code.OK
    assert bookie.counts.malformed == 100
    assert len(home.heard("connection closed")) == 1


async def test_random_bytes_never_stop_the_server(bookie: Bookie) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(50):
        async with talking(bookie) as bad:
            frame = bytearray(adds(1, range(3)) + read(1, 0) + v2.BatchReadFrame(1, 0, 1, 1, 1).encode())
            for _ in range(chance.randrange(1, 6)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            bad.writer.write(bytes(frame))
    async with talking(bookie) as good:
        assert await good.code(adds(99, [0])) == Code.OK


@pytest.mark.rule("N12")
async def test_unfinished_frames_are_bounded_by_closing_who_holds_most(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 4 * MIB)
    half = adds(1, [0], bytes(3 * MIB))[: 2 * MIB]
    async with (
        home.running(max_frame_bytes=MIB * 4) as bookie,
        talking(bookie) as good,
        contextlib.AsyncExitStack() as stack,
    ):

        def unfinished(size: int) -> bool:
            return bookie.counts.unfinished_bytes == size

        greedy = [await stack.enter_async_context(talking(bookie)) for _ in range(4)]
        for number, peer in enumerate(greedy, 1):
            peer.writer.write(half)
            await until(partial(unfinished, number * len(half)))
        good.writer.write(adds(2, [0], bytes(MIB)))
        stored = await good.frame()
        assert stored is not None and codes(stored)[0][1] == Code.OK
        assert bookie.counts.unfinished_closed == 1
        assert bookie.counts.unfinished_bytes == 3 * len(half)
        assert [peer.reader.at_eof() for peer in greedy].count(True) <= 1
        assert len(home.heard("connection closed")) == 1
        assert bookie._server._freed._freed_bytes >= len(half)
    assert bookie.counts.unfinished_bytes == 0


BATCH = v2.BatchReadFrame(1, 0, 1, 1000, 5 * MIB).encode()


async def fill(peer: Peer) -> None:
    """Ledger 1: 60 entries of 100 kB."""
    for start in range(0, 60, 10):
        peer.writer.write(adds(1, range(start, start + 10), bytes(100_000)))
        await peer.reader.readexactly(10 * 28)


async def greedy(stack: contextlib.AsyncExitStack, bookie: Bookie) -> socket.socket:
    """A peer that asks for a hundred batches and takes none."""
    peer = stack.enter_context(socket.socket())
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, bookie.address)
    await loop.sock_sendall(peer, BATCH * 100)
    return peer


async def test_answers_that_nobody_takes_are_bounded_together_and_others_are_served(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 12 * MIB)
    async with home.running() as bookie, talking(bookie) as good, contextlib.AsyncExitStack() as stack:
        await fill(good)
        for _ in range(12):
            await greedy(stack, bookie)
        await until(lambda: bookie.counts.unsent_closed > 0)
        assert {event.fields["reason"] for event in home.heard("connection closed")} == {str(CloseReason.UNSENT)}
        assert bookie.counts.unsent_bytes <= 12 * MIB
        assert await good.code(adds(2, [0])) == Code.OK
        assert await good.code(read(1, 0)) == Code.OK
        frame = await good.ask(BATCH)
        assert frame is not None and 100_000 < len(frame) < MIB, "an entry at least, and few while memory is short"
    assert (bookie.counts.unsent_bytes, bookie.counts.unfinished_bytes) == (0, 0)


async def test_who_takes_nothing_for_a_time_is_closed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_S", 0.2)
    monkeypatch.setattr(server, "TICK_S", 0.02)
    async with home.running() as bookie, talking(bookie) as good, contextlib.AsyncExitStack() as stack:
        await fill(good)
        await greedy(stack, bookie)
        await until(lambda: bookie.counts.unsent_closed == 1)
        assert [event.fields["reason"] for event in home.heard("connection closed")] == [str(CloseReason.STALLED)]
        assert await good.code(read(1, 0)) == Code.OK
        assert bookie.counts.connections == 1


async def test_a_host_whose_connections_are_closed_for_one_reason_is_told_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,800 connections with half a frame each were 1,900 lines, as often as they came back."""
    monkeypatch.setattr(server, "STALLED_S", 0.2)
    monkeypatch.setattr(server, "TICK_S", 0.02)
    async with home.running() as bookie, talking(bookie) as good, contextlib.AsyncExitStack() as stack:
        await fill(good)
        for _ in range(3):
            await greedy(stack, bookie)
        await until(lambda: bookie.counts.unsent_closed == 3)
        assert len(home.heard("connection closed")) == 1


async def test_everything_is_answered_in_order_though_a_turn_has_time_for_one_call(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookie._server._turns, "_limit_s", 1e-9)

    async def mix(ledger: int) -> list[tuple[int, Code, int, int]]:
        async with talking(bookie) as peer:
            assert await peer.code(adds(ledger, [0])) == Code.OK
            for entry in range(1, 41):
                peer.writer.write(adds(ledger, [entry]) + read(ledger, 0) + read(ledger, entry - 1))
            answers = b"".join([await peer.frame() or b"" for _ in range(120)])
            return codes(answers)

    for ledger, answers in enumerate(await asyncio.gather(*map(mix, range(6)))):
        for op, entries in (
            (v2.Op.ADD, list(range(1, 41))),
            (v2.Op.READ, [entry for pair in zip([0] * 40, range(40), strict=True) for entry in pair]),
        ):
            found = [(code, its, entry) for its_op, code, its, entry in answers if its_op == op]
            assert found == [(Code.OK, ledger, entry) for entry in entries]


async def test_answers_to_fencing_reads_that_wait_for_the_disk_are_bounded(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing = threading.Event()
    go_on = threading.Event()

    def before(action: str, path: str) -> None:
        if action == "sync" and syncing.is_set():
            assert go_on.wait(30)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as good, talking(bookie) as peer:
        await fill(good)
        syncing.set()
        fencing = v2.BatchReadFrame(1, 0, 1, 1000, 5 * MIB, KEY, v2.RequestFlag.FENCE).encode()
        peer.writer.write(adds(1, [90]) + fencing * 50)
        await until(lambda: bookie.counts.unfinished_bytes > MIB)
        before_count = -1
        while before_count != bookie.counts.batch_reads:  # until it makes no progress any more
            before_count = bookie.counts.batch_reads
            for _ in range(20):
                assert await good.code(read(1, 0)) == Code.OK
        assert bookie.counts.batch_reads == 1
        go_on.set()
        for _ in range(51):
            assert await peer.frame() is not None
    assert bookie.counts.unfinished_bytes == 0


@dataclass(eq=False)
class Taken:
    """A session whose peer has taken everything since it was counted."""

    server: BookieServer
    peer: str = "quick"
    aborted: bool = False

    def look(self) -> None:
        self.server.unsent(cast(Session, self), 0, True)

    def abort(self) -> None:
        self.aborted = True


async def test_nobody_is_closed_for_what_has_gone_out_meanwhile(bookie: Bookie) -> None:
    quick: Any = [Taken(bookie._server) for _ in range(3)]
    for session in quick:
        bookie._server.unsent(session, server.MAX_HELD_BYTES // 2, False)
    assert not any(session.aborted for session in quick)
    assert bookie.counts.unsent_bytes <= server.MAX_HELD_BYTES


@dataclass(eq=False)
class Stalled:
    """A session whose peer takes nothing."""

    server: BookieServer
    work: list[str]
    size: int
    peer: str = "slow"

    def look(self) -> None:
        self.work.append("look")
        self.server.unsent(cast(Session, self), self.size, False)

    def abort(self) -> None:
        self.work.append("abort")
        self.server.forget(cast(Session, self))


async def test_a_crowd_that_stalled_is_closed_over_several_turns(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,096 peers that had taken nothing for a minute were closed in one turn, which took 74 ms."""
    crowd, work, count = bookie._server, list[str](), 1000
    for _ in range(count):
        crowd.unsent(cast(Session, Stalled(crowd, work, 100)), 100, False)
    monkeypatch.setattr(crowd._budget, "_stalled_after_s", 0.0)
    crowd._tick()
    of_turns, done = list[int](), 0
    while bookie.counts.unsent_closed < count:
        of_turns.append(len(work) - done)
        done = len(work)
        await asyncio.sleep(0)
    assert len(of_turns) >= count // server.LOOKS_EACH_TURN and max(of_turns) <= 2 * server.LOOKS_EACH_TURN
    assert work.count("abort") == count and bookie.counts.unsent_bytes == 0


async def test_a_full_memory_costs_a_look_at_those_that_must_go_and_not_at_all(bookie: Bookie) -> None:
    crowd, work = bookie._server, list[str]()
    size = server.MAX_HELD_BYTES // 1000
    for _ in range(1010):
        crowd.unsent(cast(Session, Stalled(crowd, work, size)), size, False)
    assert work.count("abort") == work.count("look") < 100
    assert bookie.counts.unsent_bytes <= server.MAX_HELD_BYTES


async def test_a_read_waits_for_its_turn_and_adds_do_not_wait_for_it(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = bookie._server._turns
    async with talking(bookie) as writer, talking(bookie) as reader:
        assert await writer.code(adds(1, [0])) == Code.OK
        with monkeypatch.context() as no_reads:
            no_reads.setattr(turns, "admits", lambda kind: kind == Kind.ADD)
            no_reads.setattr(turns, "begin", lambda: iter(()))
            reader.writer.write(read(1, 0))
            await until(lambda: turns.due)
            for entry in range(1, 20):
                assert await writer.code(adds(1, [entry])) == Code.OK
            assert bookie.counts.reads == 0
        answer = await reader.frame()
        assert answer is not None and codes(answer)[0][1] == Code.OK


async def test_a_fault_in_serving_one_ends_that_one_and_no_turn(
    home: Home, bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a turn that a fault had ended nobody was served any more who had to wait for one."""
    storage, turns = bookie.storage, bookie._server._turns
    read_frames = storage.read_frames

    def faulty(ledger: int, entries: Sequence[int], max_bytes: int) -> tuple[bytes, int]:
        if ledger == 13:
            raise ValueError("a fault of ours")
        return read_frames(ledger, entries, max_bytes)

    monkeypatch.setattr(storage, "read_frames", faulty)
    async with talking(bookie) as bad, talking(bookie) as waiting, talking(bookie) as good:
        assert await good.code(adds(1, [0])) == Code.OK
        with monkeypatch.context() as no_reads:
            no_reads.setattr(turns, "admits", lambda kind: kind == Kind.ADD)
            no_reads.setattr(turns, "begin", lambda: iter(()))
            bad.writer.write(read(13, 0))
            await until(lambda: turns.due)
            waiting.writer.write(read(1, 0))
            await until(lambda: len(turns._waiting[Kind.READ]) == 2)
        assert await bad.frame() is None
        assert await waiting.frame() is not None
        monkeypatch.setattr(turns, "_limit_s", 1e-9)
        for _ in range(3):
            good.writer.write(read(1, 0) * 2)
            assert await good.frame() is not None and await good.frame() is not None
        await until(lambda: bookie.counts.connections == 2)
        async with talking(bookie) as again:
            assert await again.ask(read(13, 0)) is None
    (event,) = home.heard("request failed")
    assert event.fields == {"peer": "127.0.0.1", "reason": "ValueError('a fault of ours')"}
    assert not bookie.failure.done()


async def test_a_fault_in_one_response_of_a_commit_withholds_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, go_on = threading.Event(), threading.Event()

    def before(action: str, path: str) -> None:
        if action == "sync" and syncing.is_set():
            assert go_on.wait(30)

    home.disk = SpyDisk(before)
    async with home.running() as bookie, talking(bookie) as bad, talking(bookie) as good:
        assert await bad.code(adds(1, [0])) == await good.code(adds(2, [0])) == Code.OK
        session = next(iter(bookie._server._sessions))
        syncing.set()
        for number, peer in enumerate((bad, good), 1):
            peer.writer.write(adds(number, [1]))
        await until(lambda: bookie.counts.adds == 4)
        monkeypatch.setattr(session, "_write", None)
        go_on.set()
        assert await bad.frame() is None
        assert await good.frame() is not None


async def test_many_connections_bring_less_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 4 * MIB)
    async with home.running(max_frame_bytes=MIB) as bookie, contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(talking(bookie)) for _ in range(8)]
        await until(lambda: bookie.counts.connections == 8)
        assert len(bookie._server.buffer) == 4 * MIB // 4 // 8
        for number, peer in enumerate(peers):
            peer.writer.write(adds(number, [0], bytes(500_000)))
            assert codes(await peer.frame() or b"")[0][1] == Code.OK
        for peer in peers[1:]:
            await peer.close()
        await until(lambda: bookie.counts.connections == 1)
        assert len(bookie._server.buffer) == MIB


async def test_stopping_answers_what_was_asked(home: Home) -> None:
    bookie = await home.start()
    async with talking(bookie) as peer:
        peer.writer.write(adds(1, range(50)))
        await until(lambda: bookie.counts.adds == 50)
        await bookie.stop()
        assert len(codes(await peer.reader.read())) == 50
    assert bookie.counts.connections == 0


async def test_nothing_is_held_for_acks_of_a_connection_that_has_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(Committer, "forget", lambda committer, connection: forgotten.append(connection))
    async with home.running() as bookie:
        async with talking(bookie) as peer:
            assert await peer.code(adds(1, [0])) == Code.OK
        await until(lambda: bookie.counts.connections == 0)
    assert [type(connection) for connection in forgotten] == [Session]
