"""A port with many peers of version 3, some of them rude."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from pathlib import Path

import pytest

from support.bookies import KEY, Home, Peer, SpyDisk, adds, read, talking
from support.v3_frames import adds_v3, answers_v3, codes_v3, entry_body, poll_v3, read_v3, request_v3, write_lac_v3
from support.waiting import until
from tallystick.bookkeeper.bookie import server
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.bookie.turns import Kind
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3_responses import ReadResponse
from tallystick.errors import StorageError
from tallystick.runtime.places import Places

MIB = 1024 * 1024
FOR_LONG = 50_000  # ms


async def answers(peer: Peer, count: int) -> bytes:
    return b"".join([await peer.frame() or b"" for _ in range(count)])


async def test_answers_of_one_connection_and_of_many(bookie: Bookie) -> None:
    async def write(ledger: int) -> list[tuple[int, Code]]:
        async with talking(bookie) as peer:
            peer.writer.write(adds_v3(ledger, range(500)))
            return codes_v3(await answers(peer, 500))

    expected = [(number, Code.OK) for number in range(1, 501)]
    assert await asyncio.gather(*map(write, range(8))) == [expected] * 8
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
                bad.writer.write(size.to_bytes(4, "big") + b"\x0a\xff" + chance.randbytes(size - 2))
                assert await bad.frame() is None
        assert codes_v3(await good.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
    assert bookie.counts.malformed == 100
    assert len(home.heard("connection closed")) == 1


async def test_random_bytes_never_stop_the_server(bookie: Bookie) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    whole = adds_v3(1, range(3)) + read_v3(1, 0) + poll_v3(1, 0, 5) + write_lac_v3(1, 0)
    whole += adds_v3(1, [4], deferred_sync=True) + request_v3(v3.BookieInfoRequest, 3)
    whole += request_v3(v3.ForceRequest, 1) + request_v3(v3.EntryListRequest, 1)
    for _ in range(80):
        async with talking(bookie) as bad:
            frame = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                frame[chance.randrange(4, len(frame))] = chance.randrange(256)
            bad.writer.write(bytes(frame))
    async with talking(bookie) as good:
        assert codes_v3(await good.ask(adds_v3(99, [0])) or b"") == [(1, Code.OK)]
    assert not bookie.failure.done()


async def test_unfinished_frames_are_bounded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_HELD_BYTES", 4 * MIB)
    half = adds_v3(1, [0], bytes(3 * MIB))[: 2 * MIB]
    async with home.running(max_frame_bytes=MIB * 4) as bookie, contextlib.AsyncExitStack() as stack:
        greedy = [await stack.enter_async_context(talking(bookie)) for _ in range(6)]
        for peer in greedy:
            peer.writer.write(half)
        await until(lambda: bookie.counts.unfinished_closed > 0)
        assert bookie.counts.unfinished_bytes <= 4 * MIB * 2


async def test_a_deferred_add_is_acknowledged_when_the_system_has_it_and_no_sooner(tmp_path: Path) -> None:
    """Whoever kills the process between an acknowledgement and the force finds all of it after the restart."""
    dead = False

    def before(action: str, path: str) -> None:
        if dead and action in ("write", "sync"):
            raise StorageError("the process was killed before")

    home = Home(tmp_path, disk=SpyDisk(before))
    await home.found()
    bookie = await home.start()
    async with talking(bookie) as peer, talking(bookie) as late:
        for entry in range(20):
            assert codes_v3(await peer.ask(adds_v3(1, [entry], deferred_sync=True)) or b"") == [(1, Code.OK)]
        dead = True
        assert await late.ask(adds_v3(1, [20], deferred_sync=True)) is None, "it is in memory alone"
    await bookie.stop()
    dead = False
    async with home.running() as again, talking(again) as peer:
        assert codes_v3(await peer.ask(request_v3(v3.ForceRequest, 1)) or b"") == [(1, Code.OK)]
        peer.writer.write(b"".join(read_v3(1, entry) for entry in range(21)))
        codes = [code for _, code in codes_v3(await answers(peer, 21))]
        assert codes == [Code.OK] * 20 + [Code.NO_ENTRY]


async def test_deferred_adds_cost_no_sync_and_a_force_is_one_of_all(tmp_path: Path) -> None:
    done: list[str] = []
    home = Home(tmp_path, disk=SpyDisk(lambda action, path: done.append(action) if "segment" in path else None))
    await home.found()
    async with home.running() as bookie, talking(bookie) as peer:
        assert codes_v3(await peer.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
        done.clear()
        for entry in range(1, 5):
            assert codes_v3(await peer.ask(adds_v3(1, [entry], deferred_sync=True)) or b"") == [(1, Code.OK)]
        assert done == ["write"] * 4
        assert codes_v3(await peer.ask(request_v3(v3.ForceRequest, 1, number=2)) or b"") == [(2, Code.OK)]
        assert done == ["write"] * 4 + ["sync"]


async def test_entry_lists_and_long_polls_over_the_wire(bookie: Bookie) -> None:
    async with talking(bookie) as follower, talking(bookie) as writer:
        assert codes_v3(await writer.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
        follower.writer.write(poll_v3(1, -1, FOR_LONG, number=5))
        await until(lambda: bookie.counts.long_polls_waiting == 1)
        assert codes_v3(await follower.ask(read_v3(1, 0, number=6)) or b"") == [(6, Code.OK)], "it holds nobody up"
        assert await writer.ask(adds_v3(1, [1], number=2)) is not None
        assert answers_v3(await follower.frame() or b"") == [ReadResponse(5, Code.OK, 1, 0, entry_body(1, 0), 0)]
        (listed,) = answers_v3(await follower.ask(request_v3(v3.EntryListRequest, 1, number=7)) or b"")
        assert (listed.request_id, listed.code) == (7, Code.OK) and listed.availability


async def test_polls_end_with_their_connection_and_with_the_bookie(home: Home) -> None:
    async with home.running() as bookie, talking(bookie) as writer:
        assert await writer.code(adds(1, [0])) == Code.OK
        async with talking(bookie) as gone:
            gone.writer.write(b"".join(poll_v3(1, 0, FOR_LONG, number=number) for number in range(20)))
            await until(lambda: bookie.counts.long_polls_waiting == 20)
        await until(lambda: bookie.counts.long_polls_waiting == 0)
        assert not bookie._server._polls.watched
        writer_v3 = await asyncio.open_connection(*bookie.address)
        writer_v3[1].write(poll_v3(1, 0, FOR_LONG))
        await until(lambda: bookie.counts.long_polls_waiting == 1)
    writer_v3[1].close()


async def test_entry_lists_end_with_their_connection(bookie: Bookie) -> None:
    """Those of closed peers were made all the same, and kept the places of others."""
    gate, lists = threading.Event(), bookie._server._lists
    lists._worker.submit(gate.wait, lambda *_: None)
    async with talking(bookie) as writer:
        assert await writer.code(adds(1, [0])) == Code.OK
        async with talking(bookie) as gone:
            gone.writer.write(b"".join(request_v3(v3.EntryListRequest, 1, number=number) for number in range(20)))
            await until(lambda: [len(queue) for queue in lists._waiting.values()] == [19])
        await until(lambda: not lists._waiting)
        gate.set()
        await until(lambda: lists._making is None)
        assert bookie.counts.entry_lists == 0


async def test_a_fence_of_either_version_ends_the_polls_of_its_ledger(bookie: Bookie) -> None:
    async with talking(bookie) as follower, talking(bookie) as recoverer:
        for ledger, fence in ((1, read(1, -1, KEY)), (2, read(2, 0, KEY))):
            assert codes_v3(await follower.ask(adds_v3(ledger, [0])) or b"") == [(1, Code.OK)]
            follower.writer.write(poll_v3(ledger, 0, FOR_LONG, number=5))
            await until(lambda: bookie.counts.long_polls_waiting == 1)
            assert await recoverer.code(fence) == Code.OK
            assert answers_v3(await follower.frame() or b"") == [ReadResponse(5, Code.OK, ledger, -1, None, -1)]


async def test_a_poll_is_answered_when_its_ledger_is_deleted(bookie: Bookie) -> None:
    async with talking(bookie) as follower:
        for ledger in (1, 2):
            assert codes_v3(await follower.ask(adds_v3(ledger, [0])) or b"") == [(1, Code.OK)]
            follower.writer.write(poll_v3(ledger, 0, FOR_LONG, number=ledger))
        await until(lambda: bookie.counts.long_polls_waiting == 2)
        assert await bookie.upkeep.collect(lambda: [1], ()) == 1
        (response,) = codes_v3(await follower.frame() or b"")
        assert response == (1, Code.IO_ERROR), "the id may be another ledger's by now"
        assert bookie.counts.long_polls_waiting == 1


async def test_another_hosts_poll_is_held_when_one_host_has_all_places(bookie: Bookie) -> None:
    bookie._server._polls._core._shares = Places(3)
    async with talking(bookie) as greedy, talking(bookie, "127.0.0.9") as guest:
        assert codes_v3(await greedy.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
        greedy.writer.write(b"".join(poll_v3(1, -1, FOR_LONG, number=number) for number in range(4)))
        assert answers_v3(await greedy.frame() or b"") == [ReadResponse(3, Code.OK, 1, -1, None, -1)]
        guest.writer.write(poll_v3(1, -1, FOR_LONG, number=7))
        assert answers_v3(await greedy.frame() or b"") == [ReadResponse(0, Code.OK, 1, -1, None, -1)]
        assert bookie.counts.long_polls_waiting == 3
        greedy.writer.write(adds_v3(1, [1], number=8))
        assert answers_v3(await guest.frame() or b"") == [ReadResponse(7, Code.OK, 1, 0, entry_body(1, 0), 0)]


async def test_everything_is_answered_though_a_turn_has_time_for_one_call(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookie._server._turns, "_limit_s", 1e-9)

    async def mix(ledger: int) -> list[tuple[int, Code]]:
        async with talking(bookie) as peer:
            assert codes_v3(await peer.ask(adds_v3(ledger, [0], number=0)) or b"") == [(0, Code.OK)]
            for entry in range(1, 41):
                peer.writer.write(
                    adds_v3(ledger, [entry], number=3 * entry)
                    + read_v3(ledger, 0, number=3 * entry + 1)
                    + request_v3(v3.ReadLacRequest, ledger, number=3 * entry + 2)
                )
            return codes_v3(await answers(peer, 120))

    for found in await asyncio.gather(*map(mix, range(6))):
        assert sorted(found) == [(number, Code.OK) for number in range(3, 123)]


async def test_a_read_waits_for_its_turn_and_adds_do_not_wait_for_it(
    bookie: Bookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = bookie._server._turns
    async with talking(bookie) as writer, talking(bookie) as reader:
        assert codes_v3(await writer.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
        with monkeypatch.context() as no_reads:
            no_reads.setattr(turns, "admits", lambda kind: kind == Kind.ADD)
            no_reads.setattr(turns, "begin", lambda: iter(()))
            reader.writer.write(read_v3(1, 0))
            await until(lambda: turns.due)
            for entry in range(1, 20):
                assert codes_v3(await writer.ask(adds_v3(1, [entry])) or b"") == [(1, Code.OK)]
            assert bookie.counts.reads == 0
        assert codes_v3(await reader.frame() or b"") == [(1, Code.OK)]


async def test_stopping_answers_what_was_asked(home: Home) -> None:
    bookie = await home.start()
    async with talking(bookie) as peer:
        peer.writer.write(adds_v3(1, range(50)))
        await until(lambda: bookie.counts.adds == 50)
        await bookie.stop()
        assert len(answers_v3(await peer.reader.read())) == 50
    assert bookie.counts.connections == 0


async def test_a_poll_is_answered_after_its_time_out(bookie: Bookie) -> None:
    async with talking(bookie) as peer:
        assert codes_v3(await peer.ask(adds_v3(1, [0])) or b"") == [(1, Code.OK)]
        assert answers_v3(await peer.ask(poll_v3(1, 0, 1, number=5)) or b"") == [
            ReadResponse(5, Code.OK, 1, -1, None, -1)
        ]


@pytest.mark.parametrize("looks", [True])
async def test_first_adds_wait_for_a_look_as_in_version_2(bookie: Bookie) -> None:
    async with talking(bookie) as peer:
        assert codes_v3(await peer.ask(adds_v3(7, [5], number=3)) or b"") == [(3, Code.FENCED)]
        assert bookie.counts.looks == 1
