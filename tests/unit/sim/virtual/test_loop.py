"""Virtual time: it jumps, ends what cannot end by itself, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tallystick.sim.virtual.loop import Stuck, VirtualClock, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop(max_seconds=1000.0, max_turns=1000)
    yield made
    made.abandon()


def test_an_hour_of_sleep_takes_no_time(loop: VirtualLoop) -> None:
    clock, began = VirtualClock(loop, start_ms=5000), time.monotonic()
    loop.run_until_complete(asyncio.sleep(900))
    assert loop.time() == clock.now() == 900 and clock.wall_ms() == 905_000
    assert time.monotonic() - began < 60


def test_who_waits_for_nothing_is_named(loop: VirtualLoop) -> None:
    async def forgotten() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.gather(forgotten(), forgotten())

    with pytest.raises(
        Stuck, match=r"nothing will ever happen; these tasks wait;.*2 x .*forgotten at test_loop\.py:\d+"
    ):
        loop.run_until_complete(main())


def test_a_run_that_goes_on_and_on_is_ended(loop: VirtualLoop) -> None:
    async def poll(pause_s: float) -> None:
        while True:  # noqa: ASYNC110  # that is what is tested
            await asyncio.sleep(pause_s)

    with pytest.raises(Stuck, match="not at its end after 1000 seconds"):
        loop.run_until_complete(poll(7.0))
    spinning = VirtualLoop(max_seconds=1000.0, max_turns=1000)
    with pytest.raises(Stuck, match="not at its end after 1,000 turns"):
        spinning.run_until_complete(poll(0.0))
    spinning.abandon()


def test_timers_that_were_cancelled_make_no_turn_longer(loop: VirtualLoop) -> None:
    """Who waits anew until one and the same time, at each event, leaves as many of them."""

    async def main() -> None:
        loop.call_at(5.0, lambda: None)
        for _ in range(500):
            loop.call_at(5.0, loop.stop).cancel()
        await asyncio.sleep(6.0)

    loop.run_until_complete(main())
    assert loop.longest_turn < 10


def test_whoever_waits_for_the_rest_of_a_time_comes_to_its_end(loop: VirtualLoop) -> None:
    async def main() -> None:
        while loop.time() < 1e-10:  # less than the clock's resolution: the timer is due at once
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 1e-10 - loop.time())

    loop.run_until_complete(main())
    assert 1e-10 <= loop.time() < 1.0


def test_what_a_callback_raises_is_kept(loop: VirtualLoop) -> None:
    loop.call_later(1.0, lambda: 1 // 0)
    loop.run_until_complete(asyncio.sleep(2))
    assert len(loop.errors) == 1 and "ZeroDivisionError" in loop.errors[0]


def test_a_thread_is_refused(loop: VirtualLoop) -> None:
    with pytest.raises(AssertionError, match="no threads"):
        loop.run_until_complete(asyncio.to_thread(print))


@pytest.mark.parametrize(
    "outside",
    [
        lambda: asyncio.open_connection("127.0.0.1", 1),
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0),
        lambda: asyncio.open_unix_connection("/nowhere"),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.create_subprocess_shell("true"),
        lambda: asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, ("127.0.0.1", 0)),
    ],
)
def test_what_belongs_to_the_machine_is_refused_in_words(
    loop: VirtualLoop, outside: Callable[[], Awaitable[object]]
) -> None:
    async def ask() -> None:
        await outside()

    with pytest.raises(AssertionError, match=r"no sockets.*use the clients that the cluster gives .*or real time"):
        loop.run_until_complete(ask())


def test_signals_and_readers_of_the_machine_are_refused_in_words(loop: VirtualLoop) -> None:
    with pytest.raises(AssertionError, match=r"no sockets.* or signals"):
        loop.add_reader(0, print)
    with pytest.raises(AssertionError, match=r"no sockets.* or signals"):
        loop.add_signal_handler(signal.SIGTERM, print)


def test_what_is_not_done_is_closed_in_order() -> None:
    loop, ended = VirtualLoop(max_seconds=10.0, max_turns=100), list[int]()

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def main() -> None:
        for number in range(3):
            asyncio.create_task(wait(number))  # noqa: RUF006  # the loop holds it
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert ended == []
    loop.abandon()
    assert ended == [2, 1, 0] and loop.is_closed()


def test_who_waits_while_it_is_closed_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it would be closed by the garbage collector, with an error that somebody else gets."""
    ended, unraisable = list[int](), list[object]()
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def clean_up(number: int, never: asyncio.Future[None]) -> None:
        ended.append(number)
        await (never if number else asyncio.get_running_loop().create_future())

    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(3):
                stack.push_async_callback(clean_up, number, asyncio.get_running_loop().create_future())

    async def main() -> None:
        asyncio.create_task(work())  # noqa: RUF006  # the loop holds it
        await asyncio.sleep(1)

    loop = VirtualLoop(max_seconds=1000.0, max_turns=1000)
    loop.run_until_complete(main())
    loop.abandon()
    gc.collect()
    assert (ended, unraisable) == ([2, 1, 0], [])
