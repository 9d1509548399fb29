"""The client's side of a bookie connection: matching, batching, time-outs, failures, hostile peers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from support.links import KEY, AddLog, add_frame, answering, entry_of, ok
from support.waiting import until
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.owners import BookieResponse
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import BookieUnavailable, RequestTimeout

if TYPE_CHECKING:
    from support.fake_bookie import FakeBookie
    from unit.bookkeeper.ledger.conftest import Bench


async def test_reads_answer_with_code_and_bytes(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.entries[7, 0] = bench.entry(7, 0, b"abc")
    client = bench.client()
    answer = await client.read("b1", 7, 0)
    assert (answer.code, bytes(answer.entry)) == (Code.OK, bookie.entries[7, 0])
    assert (await client.read("b1", 7, 1)).code == Code.NO_ENTRY
    assert (await client.read("b1", 8, -1)).code == Code.NO_LEDGER
    last = await client.read("b1", 7, -1, master_key=KEY)
    assert bytes(last.entry) == bookie.entries[7, 0]
    assert bookie.requests[-1] == v2.ReadFrame(7, -1, KEY, v2.RequestFlag.FENCE)
    assert bookie.opened == 1


async def test_batch_reads_and_long_answers(bench: Bench) -> None:
    """Answers beyond the read buffer go to a buffer of their own, next to short ones."""
    [bookie] = await bench.bookie("b1")
    sizes = [10, 300_000, 0, 70_000, 1_000_000, 5]
    for entry, size in enumerate(sizes):
        bookie.entries[1, entry] = bench.entry(1, entry, bytes([entry]) * size)
    client = bench.client()
    whole, singles = await asyncio.gather(
        client.batch_read("b1", 1, 0, max_count=6, max_bytes=4_000_000),
        asyncio.gather(*(client.read("b1", 1, entry) for entry in range(6))),
    )
    assert [bytes(entry) for entry in whole.entries] == [bookie.entries[1, entry] for entry in range(6)]
    assert [bytes(answer.entry) for answer in singles] == [bookie.entries[1, entry] for entry in range(6)]
    limited = await client.batch_read("b1", 1, 0, max_count=3, max_bytes=4_000_000)
    assert len(limited.entries) == 3
    none = await client.batch_read("b1", 1, 9, max_count=3, max_bytes=1000)
    assert (none.code, none.entries) == (Code.NO_ENTRY, ())


async def test_adds_report_once_for_a_read_and_leave_in_one_write(bench: Bench) -> None:
    await bench.bookie("b1")
    listener, client = AddLog(), bench.client()
    await client.read("b1", 1, 0)
    channel = client.adds("b1", 1, listener)
    for first in range(0, 100, 10):
        entries = list(range(first, first + 10))
        channel.send(entries, b"".join(add_frame(bench, 1, entry) for entry in entries))
    assert listener.acked == []
    await until(lambda: len(listener.all_acked) == 100)
    assert listener.acked == [list(range(100))]  # one write each way, and everything of the read in one call
    assert listener.failed == []


async def test_a_connection_with_more_than_a_slice_in_its_queue_is_blocked_until_that_is_written(bench: Bench) -> None:
    """Also before the transport says so: what is queued then is kept as it is, not joined into copies."""
    await bench.bookie("b1")
    listener, client = AddLog(), bench.client()
    channel = client.adds("b1", 1, listener)
    channel.send([0], add_frame(bench, 1, 0))
    await until(lambda: listener.all_acked == [0])
    payload = bytes(100 * 1024)
    for entry in range(1, 12):
        assert not channel.blocked
        channel.send([entry], add_frame(bench, 1, entry, payload))
    assert channel.blocked
    await until(lambda: len(listener.all_acked) == 12)
    assert not channel.blocked


async def test_answers_out_of_turn_and_of_several_ledgers(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    one, two, client = AddLog(), AddLog(), bench.client()
    first, second = client.adds("b1", 1, one), client.adds("b1", 2, two)
    first.send([0, 3, 6, 9], b"".join(add_frame(bench, 1, entry) for entry in (0, 3, 6, 9)))
    second.send([0, 1], b"".join(add_frame(bench, 2, entry) for entry in (0, 1)))
    alone = client.ask_read("b1", 1, 4)
    await until(lambda: len(bookie.requests) == 7)
    found = v2.encode_response(v2.ReadFrame(1, 4), Code.OK, b"stored")
    bookie.say(ok(1, 3) + ok(2, 0) + found + ok(1, 0) + ok(1, 9) + ok(2, 1, Code.IO_ERROR) + ok(1, 6))
    await until(lambda: len(one.all_acked) == 4 and two.failed)
    assert sorted(one.all_acked) == [0, 3, 6, 9]
    assert (two.all_acked, two.failed) == ([0], [([1], Code.IO_ERROR)])
    assert await alone == BookieResponse(Code.OK, (b"stored",))


async def test_refusals_of_one_read_come_in_one_call(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = answering(Code.FENCED)
    listener, client = AddLog(), bench.client()
    client.adds("b1", 1, listener).send(list(range(50)), b"".join(add_frame(bench, 1, entry) for entry in range(50)))
    await until(lambda: len(listener.all_failed) == 50)
    assert listener.failed == [(list(range(50)), Code.FENCED)]


async def test_late_answers_of_a_closed_channel_go_to_nobody(bench: Bench) -> None:
    """A replaced by B replaced by A again: the first attempt's answers must not count for the second (attempt tags)."""
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    old, new, client = AddLog(), AddLog(), bench.client()
    channel = client.adds("b1", 1, old)
    channel.send([5, 6], add_frame(bench, 1, 5) + add_frame(bench, 1, 6))
    await until(lambda: len(bookie.requests) == 2)
    channel.close()
    again = client.adds("b1", 1, new)
    again.send([5, 6], add_frame(bench, 1, 5) + add_frame(bench, 1, 6))
    await until(lambda: len(bookie.requests) == 4)
    bookie.say(ok(1, 5) + ok(1, 6))
    await client_round_trip(client, bookie)
    assert (old.acked, new.acked) == ([], [])
    bookie.say(ok(1, 5) + ok(1, 6))
    await until(lambda: new.acked)
    assert (old.acked, new.all_acked, old.failed, new.failed) == ([], [5, 6], [], [])


async def client_round_trip(client: BookieClient, bookie: FakeBookie) -> None:
    """Everything the bookie has said so far is behind the answer to this."""
    script, bookie.script = bookie.script, None
    await client.read(bookie.id, 999, 0)
    bookie.script = script


async def test_a_run_of_reads_sorts_answers_by_kind(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    for entry in range(0, 200, 2):
        bookie.entries[1, entry] = bench.entry(1, entry, b"z" * (entry * 11))
    bookie.entries[1, 198] = bench.entry(1, 198, b"z" * 100_000)
    client = bench.client()
    runs = [client.read_run("b1", 1, range(first, first + 50)) for first in (0, 50, 100, 150)]
    alone = client.ask_read("b1", 1, 42)
    await asyncio.wait([run.done for run in runs])
    for run in runs:
        assert {entry: bytes(data) for entry, data in run.stored_entries.items()} == {
            entry: bookie.entries[1, entry] for entry in run.entries if entry % 2 == 0
        }
        assert run.codes == {entry: Code.NO_ENTRY for entry in run.entries if entry % 2}
        assert run.errors == {}
    answer = await alone
    assert bytes(answer.entry) == bookie.entries[1, 42]


async def test_a_run_of_reads_ends_with_its_connection_or_its_time(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.entries[1, 0] = bench.entry(1, 0, b"z")
    bookie.script = lambda request: bookie.default(request) if entry_of(request) == 0 else None
    client = bench.client(read_timeout_s=0.1)
    run = client.read_run("b1", 1, [0, 1, 2])
    await run.done
    assert (list(run.stored_entries), run.codes, list(run.errors)) == ([0], {}, [1, 2])
    assert isinstance(run.errors[1], RequestTimeout)
    bookie.script = lambda request: bookie.CLOSE
    run = client.read_run("b1", 1, [0, 1, 2])
    await run.done
    assert (run.stored_entries, sorted(run.errors)) == ({}, [0, 1, 2])
    assert isinstance(run.errors[0], BookieUnavailable)


async def test_a_run_of_reads_that_was_left_hears_nothing(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    client = bench.client()
    left = client.read_run("b1", 1, [0, 1])
    await until(lambda: len(bookie.requests) == 2)
    left.close()
    again = client.read_run("b1", 1, [0, 1])
    await until(lambda: len(bookie.requests) == 4)
    refuse, missing = Code.IO_ERROR, Code.NO_ENTRY
    for code in (refuse, missing):
        bookie.say(b"".join(v2.encode_response(v2.ReadFrame(1, entry), code) for entry in (0, 1)))
    await again.done
    assert (left.codes, again.codes) == ({}, {0: missing, 1: missing})


async def test_a_channel_closed_by_its_own_callback_hears_no_more_of_that_read(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    client = bench.client()

    class Closing(AddLog):
        def on_acked(self, slot: int, entries: list[int]) -> None:
            super().on_acked(slot, entries)
            channel.close()

    listener = Closing()
    channel = client.adds("b1", 1, listener)
    channel.send([0, 1, 2], b"".join(add_frame(bench, 1, entry) for entry in range(3)))
    await until(lambda: len(bookie.requests) == 3)
    bookie.say(ok(1, 0) + ok(1, 1, Code.FENCED) + ok(1, 2))
    await client_round_trip(client, bookie)
    assert (listener.acked, listener.failed) == ([[0]], [])


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(ok(1, 77), id="an ack nobody waits for"),
        pytest.param(v2.encode_response(v2.ReadFrame(1, 77), Code.OK, b"x" * 40), id="a read nobody asked for"),
        pytest.param(b"\xff\xff\xff\xff" + b"x" * 100, id="a length of 4 GiB"),
        pytest.param((10_000_000).to_bytes(4, "big"), id="a length over the limit"),
        pytest.param(b"\x00\x00\x00\x00", id="an empty frame"),
        pytest.param(b"\x00\x00\x00\x04\x02\x09\x00\x00", id="an unknown opcode"),
        pytest.param(b"\x00\x00\x00\x08\x02\x02\x00\x00\x00\x00\x00\x00", id="a frame shorter than its form"),
        pytest.param(v2.AuthFrame(b"").encode(), id="authentication"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
async def test_malformed_or_unasked_answers_end_the_connection_as_unknown(bench: Bench, garbage: bytes) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    listener, client = AddLog(), bench.client()
    client.adds("b1", 1, listener).send([0, 1], add_frame(bench, 1, 0) + add_frame(bench, 1, 1))
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 3)
    bookie.say(ok(1, 0) + garbage)
    with pytest.raises(BookieUnavailable):
        await read
    assert (listener.acked, listener.failed) == ([[0]], [([1], None)])
    assert "bookie broke the protocol" in bench.kinds()
    bookie.script = None
    assert (await client.read("b1", 1, 0)).code == Code.NO_LEDGER


async def test_answers_in_any_pieces(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    bookie.entries[1, 0] = bench.entry(1, 0, b"y" * 1000)
    listener, client = AddLog(), bench.client()
    client.adds("b1", 1, listener).send([0, 1], add_frame(bench, 1, 0) + add_frame(bench, 1, 1))
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 3)
    answers = ok(1, 0) + v2.encode_response(v2.ReadFrame(1, 0), Code.OK, bookie.entries[1, 0]) + ok(1, 1)
    for at in range(0, len(answers), 7):
        bookie.say(answers[at : at + 7])
        await asyncio.sleep(0)
    assert bytes((await read).entry) == bookie.entries[1, 0]
    await until(lambda: listener.all_acked == [0, 1])


async def test_a_given_up_read_leaves_its_answer_to_nobody(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    client = bench.client()
    given_up = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 1)
    given_up.cancel()
    again = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 2)
    bookie.say(
        v2.encode_response(v2.ReadFrame(1, 0), Code.IO_ERROR) + v2.encode_response(v2.ReadFrame(1, 0), Code.NO_ENTRY)
    )
    assert (await again).code == Code.NO_ENTRY


async def test_close_fails_what_is_outstanding_and_what_comes_after(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    listener, client = AddLog(), bench.client()
    channel = client.adds("b1", 1, listener)
    channel.send([0], add_frame(bench, 1, 0))
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 2)
    await client.close()
    assert listener.failed == [([0], None)]
    for attempt in (read, client.read("b1", 1, 0), client.read("b2", 1, 0)):
        with pytest.raises(BookieUnavailable, match="closed"):
            await attempt


async def test_close_ends_the_connection_of_version_3_too(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script_v3 = lambda request: None
    client = bench.client()
    await client.read("b1", 1, 0)
    forced = client.force("b1", 1)
    await until(lambda: len(bookie.requests_v3) == 1)
    assert bookie.opened == len(bookie.connections) == 2
    await client.close()
    assert forced.done()
    with pytest.raises(BookieUnavailable, match="closed"):
        await forced
    await until(lambda: not bookie.connections)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_on_both_event_loops(make_bench: type[Bench], loop: str) -> None:
    """Their transports, buffers and joined writes differ; the answers must not."""

    async def scenario() -> None:
        bench = make_bench()
        [bookie] = await bench.bookie("b1")
        for entry in range(300):
            bookie.entries[1, entry] = bench.entry(1, entry, bytes([entry % 256]) * (entry * 37 % 9000))
        listener, client = AddLog(), bench.client()
        channel = client.adds("b1", 2, listener)
        for first in range(0, 1000, 100):
            entries = list(range(first, first + 100))
            channel.send(entries, b"".join(add_frame(bench, 2, entry, b"p" * 1000) for entry in entries))
        whole, singles = await asyncio.gather(
            client.batch_read("b1", 1, 0, max_count=300, max_bytes=5_000_000),
            asyncio.gather(*(client.read("b1", 1, entry) for entry in range(300))),
        )
        expected = [bookie.entries[1, entry] for entry in range(300)]
        assert [bytes(entry) for entry in whole.entries] == expected
        assert [bytes(answer.entry) for answer in singles] == expected
        await until(lambda: len(listener.all_acked) == 1000)
        assert listener.all_acked == list(range(1000))
        await bench.close()

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


async def test_a_ledgers_id_says_which_of_several_connections_is_its_own(bench: Bench) -> None:
    (b1,) = await bench.bookie("b1")
    client = bench.client(connections_per_bookie=3)
    for ledger in (*range(6), 0, 5):
        b1.entries[ledger, 0] = bench.entry(ledger, 0, b"x")
        response = await client.read("b1", ledger, 0)
        assert response.code == Code.OK
    assert b1.opened == 3
    numbers = [client.connection("b1", ledger) for ledger in range(6)]
    assert numbers[:3] == numbers[3:] and len(set(numbers)) == 3
    b1.connections[-1].abort()
    await asyncio.sleep(0.01)
    lost = [ledger for ledger in range(3) if client.connection("b1", ledger) != numbers[ledger]]
    assert len(lost) == 1 and client.connection("b1", lost[0]) > max(numbers)
    assert (await client.read("b1", lost[0], 0)).code == Code.OK
    assert client.counts.reconnects == 1


async def test_with_one_connection_all_ledgers_share_it(bench: Bench) -> None:
    (b1,) = await bench.bookie("b1")
    client = bench.client()
    assert {client.connection("b1", ledger) for ledger in range(6)} == {1}
    await client.read("b1", 1, 0)
    assert b1.opened == 1


async def test_a_bookie_that_was_reached_is_tried_again_soon_once_it_is_lost(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    client = bench.client()

    async def tries(seconds: float) -> int:
        """How many attempts to connect fail in this time."""
        before = Counter(bench.kinds())["bookie not reached"]
        for _ in range(round(seconds / 0.01)):
            with pytest.raises(BookieUnavailable):
                await client.read("b1", 1, 0)
            await asyncio.sleep(0.01)
        return Counter(bench.kinds())["bookie not reached"] - before

    await bookie.stop()
    first = await tries(1.0)
    await tries(10.0)
    assert await tries(1.0) < first
    await bookie.start()
    await asyncio.sleep(2)
    assert (await client.read("b1", 1, 0)).code == Code.NO_LEDGER
    await bookie.stop()
    await asyncio.sleep(0.01)
    assert await tries(1.0) == first
