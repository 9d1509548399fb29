"""What a lost, late or missing bookie does to the requests that wait for it: they end as unknown."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from support.black_hole import BlackHole
from support.fake_bookie import FakeBookie
from support.links import AddLog, add_frame, entry_of, holding, ok
from support.waiting import until
from tallystick.bookkeeper.ledger.add_channel import AddChannel, AddListener
from tallystick.bookkeeper.ledger.bookie_peer import FIRST_BACKOFF_S
from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.owners import BookieResponse
from tallystick.bookkeeper.ledger.reports import OWNERS_A_TURN
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.errors import BookieUnavailable, RequestTimeout
from tallystick.runtime.clock import SystemClock

if TYPE_CHECKING:
    from unit.bookkeeper.ledger.conftest import Bench


@pytest.mark.rule("Q15")
async def test_q15_a_lost_connection_is_unknown_for_everything_outstanding(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    listener, client = AddLog(), bench.client()
    client.adds("b1", 1, listener).send([0, 1], add_frame(bench, 1, 0) + add_frame(bench, 1, 1))
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: len(bookie.requests) == 3)
    bookie.connections[0].abort()
    with pytest.raises(BookieUnavailable) as caught:
        await read
    assert caught.value.ambiguous
    assert listener.failed == [([0, 1], None)]
    assert "bookie connection ended" in bench.kinds()
    bookie.script = None
    assert (await client.read("b1", 1, 0)).code == Code.NO_LEDGER  # reconnects by itself
    assert bookie.opened == 2


async def test_a_channel_outlives_its_connection(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    listener, client = AddLog(), bench.client()
    channel = client.adds("b1", 1, listener)
    channel.send([0], add_frame(bench, 1, 0))
    await until(lambda: listener.all_acked == [0])
    bookie.connections[0].abort()
    await until(lambda: "bookie connection ended" in bench.kinds())
    channel.send([1], add_frame(bench, 1, 1))
    await until(lambda: listener.all_acked == [0, 1])
    assert (listener.failed, bookie.opened) == ([], 2)
    assert list(map(entry_of, bookie.requests)) == [0, 1], "what was answered is not sent again"


async def test_unreachable_bookies_fail_and_are_not_hammered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    [bookie] = await bench.bookie("b1")
    host, port = bookie.address
    await bookie.stop()
    resolved = 0

    async def resolve(name: str) -> tuple[str, int]:
        nonlocal resolved
        resolved += 1
        return host, port

    monkeypatch.setattr(bench, "resolve", resolve)
    listener, client = AddLog(), bench.client()
    channel = client.adds("b1", 1, listener)
    channel.send([0], add_frame(bench, 1, 0))
    assert listener.failed == []  # never inside send
    await until(lambda: listener.failed == [([0], None)])
    for _ in range(20):
        with pytest.raises(BookieUnavailable):
            await client.read("b1", 1, 0)
    assert resolved < 20


async def test_a_bookie_behind_a_black_hole_is_reached_again_however_much_is_asked_meanwhile(bench: Bench) -> None:
    """The attempt to connect hangs until the requests that wait for it time out, which cancels it."""
    await bench.bookie("b1")
    network = BlackHole()
    client = BookieClient(bench.outside(network=network), bench.resolve, ClientSettings(add_timeout_s=0.05))
    bench.clients.append(client)
    listener = AddLog()
    client.adds("b1", 1, listener).send([0], add_frame(bench, 1, 0))
    await until(lambda: listener.failed == [([0], None)])  # by its time-out
    assert "bookie not reached" in bench.kinds()
    network.passes = True

    async def answered() -> BookieResponse:
        while True:
            try:
                return await client.read("b1", 1, 0)  # at once again, as a busy client asks
            except BookieUnavailable:
                await asyncio.sleep(0.001)

    async with asyncio.timeout(20):
        assert (await answered()).code == Code.NO_LEDGER
    assert network.attempts == 2


async def test_only_a_real_attempt_moves_the_back_off(bench: Bench) -> None:
    class Clock(SystemClock):
        at = 100.0

        def now(self) -> float:
            return self.at

    [bookie] = await bench.bookie("b1")
    host, port = bookie.address
    await bookie.stop()
    network, clock = BlackHole(passes=True), Clock()

    async def resolve(name: str) -> tuple[str, int]:
        return host, port

    client = BookieClient(bench.outside(network=network, clock=clock), resolve, ClientSettings())
    bench.clients.append(client)

    async def ask() -> str:
        with pytest.raises(BookieUnavailable) as caught:
            await client.read("b1", 1, 0)
        return str(caught.value)

    first = await ask()
    for _ in range(50):  # within the back-off: neither tried nor counted, and told why
        clock.at += FIRST_BACKOFF_S / 100
        assert "a moment ago" in await ask()
    assert "nobody listens" in first and "nobody listens" in await ask()
    assert network.attempts == 1
    clock.at += FIRST_BACKOFF_S / 2 + 0.001
    await ask()
    assert network.attempts == 2
    assert Counter(bench.kinds())["bookie not reached"] == 2


async def test_a_client_that_is_closed_while_it_connects_leaves_nothing_behind(bench: Bench) -> None:
    await bench.bookie("b1")
    client = BookieClient(bench.outside(network=BlackHole()), bench.resolve, ClientSettings())
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(BookieUnavailable, match="closed"):
        await read
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert bench.kinds() == []


async def test_an_unregistered_bookie_is_unavailable_until_it_is_back(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    await bookie.stop()
    client = bench.client()
    with pytest.raises(BookieUnavailable, match="not registered") as raised:
        await client.read("b1", 1, 0)
    assert str(raised.value).count("bookie=b1") == 1
    await bookie.start()  # on another port: the id is resolved again
    async with asyncio.timeout(10):
        while True:
            try:
                answer = await client.read("b1", 1, 0)
                break
            except BookieUnavailable:
                await asyncio.sleep(0.01)
    assert answer.code == Code.NO_LEDGER


async def test_silence_times_out_as_unknown_and_ends_the_connection(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    listener, client = AddLog(), bench.client(add_timeout_s=0.1, read_timeout_s=30.0)
    client.adds("b1", 1, listener).send([0, 1], add_frame(bench, 1, 0) + add_frame(bench, 1, 1))
    read = asyncio.ensure_future(client.read("b1", 1, 0))
    with pytest.raises(BookieUnavailable, match="silent"):
        await read  # with the connection, long before its own time
    assert listener.failed == [([0, 1], None)]


async def test_one_slow_answer_times_out_alone_and_its_late_answer_is_swallowed(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None if entry_of(request) == 0 else bookie.default(request)
    client = bench.client(read_timeout_s=0.1)
    slow = asyncio.ensure_future(client.read("b1", 1, 0))
    while not slow.done():
        await client.read("b1", 1, 1)
        await asyncio.sleep(0.005)
    with pytest.raises(RequestTimeout):
        await slow
    again = asyncio.ensure_future(client.read("b1", 1, 0))
    await until(lambda: list(map(entry_of, bookie.requests)).count(0) == 2)
    bookie.say(v2.encode_response(v2.ReadFrame(1, 0), Code.IO_ERROR))  # belongs to the first request
    bookie.say(v2.encode_response(v2.ReadFrame(1, 0), Code.NO_LEDGER))
    assert (await again).code == Code.NO_LEDGER
    assert bookie.opened == 1


@pytest.mark.parametrize("retry_in_run", [False, True])
@pytest.mark.parametrize("first_in_run", [False, True])
async def test_a_read_that_timed_out_is_answered_when_it_is_asked_again(
    bench: Bench, first_in_run: bool, retry_in_run: bool
) -> None:
    [bookie] = await bench.bookie("b1")
    data = bookie.entries[1, 0] = bench.entry(1, 0, b"late")
    bookie.script = lambda request: None if entry_of(request) == 0 else bookie.default(request)
    client = bench.client()

    async def read(in_run: bool) -> bytes:
        if not in_run:
            return bytes((await client.read("b1", 1, 0)).entry)
        run = client.read_run("b1", 1, [0])
        await run.done
        for error in run.errors.values():
            raise error
        return bytes(run.stored_entries[0])

    def asked_for_the_first(times: int) -> bool:
        return list(map(entry_of, bookie.requests)).count(0) == times

    for attempt in range(3):  # time and again: each time-out leaves a request that its late answer settles
        client.settings = ClientSettings(read_timeout_s=0.05)
        slow = asyncio.ensure_future(read(first_in_run))
        await asyncio.sleep(0)  # it is asked
        client.settings = ClientSettings(read_timeout_s=30.0)
        await client.read("b1", 1, 1)  # the connection lives
        with pytest.raises(RequestTimeout):
            await slow
        again = asyncio.ensure_future(read(retry_in_run))
        await until(partial(asked_for_the_first, 2 * attempt + 2))
        bookie.say(2 * v2.encode_response(v2.ReadFrame(1, 0), Code.OK, data))
        assert await again == data
    assert bookie.opened == 1


@pytest.mark.rule("Q15")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_q15_an_unexpected_error_leaves_everything_unanswered_unknown(
    make_bench: type[Bench], loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        bench = make_bench()
        [bookie] = await bench.bookie("b1")
        bookie.script = lambda request: None
        listener, client = AddLog(), bench.client(add_timeout_s=60.0, read_timeout_s=60.0)
        client.adds("b1", 1, listener).send([0], add_frame(bench, 1, 0))
        read = asyncio.ensure_future(client.read("b1", 1, 0))
        await until(lambda: len(bookie.requests) == 2)

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr("tallystick.bookkeeper.ledger.wire_v2.scan_acks", broken)
        bookie.say(ok(1, 0))
        with pytest.raises(BookieUnavailable, match="a bug"):
            await asyncio.wait_for(read, 5)
        assert listener.failed == [([0], None)]
        assert bench.kinds() == ["bookie connection failed", "bookie connection ended"]
        await bench.close()

    factory = pytest.importorskip("uvloop").new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


class Faulty(AddLog):
    """Raises when it is told of acks; ``fails``: of failures too."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self._fails = fails

    def on_acked(self, slot: int, entries: list[int]) -> None:
        raise ZeroDivisionError("a bug")

    def on_failed(self, slot: int, entries: list[int], code: int | None) -> None:
        super().on_failed(slot, entries, code)
        if self._fails:
            raise ZeroDivisionError("a bug")


async def test_a_channel_that_fails_on_its_answers_keeps_them_from_nobody_else(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    first, second, client = Faulty(), AddLog(), bench.client(add_timeout_s=60.0)
    client.adds("b1", 1, first).send([0, 1], add_frame(bench, 1, 0) + add_frame(bench, 1, 1))
    client.adds("b1", 2, second).send([0], add_frame(bench, 2, 0))
    await until(lambda: len(bookie.requests) == 3)
    bookie.say(ok(1, 0) + ok(2, 0))
    await until(lambda: second.failed)
    assert sorted(first.failed) == [([0], None), ([1], None)]
    assert second.failed == [([0], None)]
    assert "bookie connection failed" in bench.kinds()


async def test_a_channel_that_fails_on_its_time_out_keeps_it_from_nobody_else(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None
    listener, client = AddLog(), bench.client(add_timeout_s=0.05)
    client.adds("b1", 1, Faulty(fails=True)).send([0], add_frame(bench, 1, 0))
    client.adds("b1", 2, listener).send([0], add_frame(bench, 2, 0))
    await until(lambda: listener.failed)
    assert listener.failed == [([0], None)]
    assert bench.kinds()[0] == "failure not taken"


async def test_adds_time_out_while_others_are_answered(bench: Bench) -> None:
    [bookie] = await bench.bookie("b1")
    bookie.script = lambda request: None if getattr(request, "entry", 0) == 2 else bookie.default(request)
    listener, client = AddLog(), bench.client(add_timeout_s=0.1)
    channel = client.adds("b1", 1, listener)
    channel.send([0, 1, 2, 3], b"".join(add_frame(bench, 1, entry) for entry in range(4)))
    number = 3
    while not listener.failed:
        number += 1
        channel.send([number], add_frame(bench, 1, number))
        await asyncio.sleep(0.005)
    assert listener.failed == [([2], None)]
    bookie.say(ok(1, 2))  # late
    await until(lambda: len(listener.all_acked) == number)
    assert 2 not in listener.all_acked
    assert bookie.opened == 1


async def test_an_answer_is_not_overdue_because_the_loop_stood_still(bench: Bench) -> None:
    """By the clock the time-out is long over when the loop runs again; the answer may lie in the socket."""

    class Clock(SystemClock):
        stood_still_s = 0.0

        def now(self) -> float:
            return super().now() + self.stood_still_s

    [bookie] = await bench.bookie("b1")
    held: list[v2.AddFrame] = []
    bookie.script = holding(held)
    clock = Clock()
    client = BookieClient(bench.outside(clock=clock), bench.resolve, ClientSettings())
    bench.clients.append(client)
    listener = AddLog()
    channel = client.adds("b1", 1, listener)
    channel.send([0], add_frame(bench, 1, 0))
    await until(lambda: held)
    clock.stood_still_s += 1000.0
    assert channel._link is not None
    time = channel._link._time
    await until(lambda: time.now() < clock.now() - 900)
    bookie.say(v2.encode_response(held[0], Code.OK))
    await until(lambda: listener.acked == [[0]])
    assert listener.failed == []


class Turns:
    """How many channels heard something, by turn of the loop."""

    def __init__(self) -> None:
        self.heard: Counter[int] = Counter()
        self._turn = 0
        self._next()

    def _next(self) -> None:
        self._turn += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def on_acked(self, slot: int, entries: list[int]) -> None:
        self.heard[self._turn] += 1

    def on_failed(self, slot: int, entries: list[int], code: int | None) -> None:
        self.heard[self._turn] += 1

    def stop(self) -> None:
        self._handle.cancel()


async def held_adds(
    bench: Bench, listener: AddListener, count: int
) -> tuple[FakeBookie, list[v2.AddFrame], list[AddChannel]]:
    """A bookie that holds an add of each of so many ledgers, the adds, and their channels."""
    [bookie] = await bench.bookie("b1")
    held: list[v2.AddFrame] = []
    bookie.script = holding(held)
    client = bench.client()
    channels = [client.adds("b1", ledger, listener) for ledger in range(count)]
    for ledger, channel in enumerate(channels):
        channel.send([0], add_frame(bench, ledger, 0))
    await until(lambda: len(held) == count)
    return bookie, held, channels


@pytest.mark.real_time  # a turn takes no virtual time
@pytest.mark.parametrize("acks", [False, True], ids=["failures", "acks"])
async def test_what_concerns_thousands_of_ledgers_is_told_over_many_turns(bench: Bench, acks: bool) -> None:
    count, turns = 1000, Turns()
    bookie, held, _ = await held_adds(bench, turns, count)
    if acks:
        bookie.say(b"".join(v2.encode_response(request, Code.OK) for request in held))
    else:
        await bookie.stop()
    await until(lambda: turns.heard.total() == count)
    assert max(turns.heard.values()) <= OWNERS_A_TURN
    turns.stop()


async def test_who_waits_hears_of_the_end_of_the_client_before_it_is_closed(bench: Bench) -> None:
    await bench.bookie("b1")
    bench.bookies["b1"].script = lambda request: None
    client, listener = bench.client(), AddLog()
    for ledger in range(1000):
        channel = client.adds("b1", ledger, listener)
        channel.send([0], add_frame(bench, ledger, 0))
    await until(lambda: len(bench.bookies["b1"].requests) == 1000)
    await client.close()
    assert listener.failed == [([0], None)] * 1000


@pytest.mark.real_time  # a turn takes no virtual time
async def test_acks_that_came_before_the_end_are_acks(bench: Bench) -> None:
    count, listener = 1000, AddLog()
    bookie, held, channels = await held_adds(bench, listener, count)
    bookie.say(b"".join(v2.encode_response(request, Code.OK) for request in held))
    link = channels[0]._link
    assert link is not None
    await until(lambda: link._reports.is_reporting)
    link.end("the test ends it while acks wait to be told")
    assert (len(listener.acked), listener.failed) == (count, [])
