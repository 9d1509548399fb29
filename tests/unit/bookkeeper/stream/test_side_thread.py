"""What the loop does itself in a turn, and what it leaves to a thread."""

from __future__ import annotations

import asyncio
import threading
import zlib
from typing import Any, cast

import pytest

from tallystick.bookkeeper.stream.side_thread import TURN_US, SideThread, compress_us, decompress_us
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.errors import UsageError
from tallystick.runtime.worker import ThreadWorker


def side_thread(workers: Any = ThreadWorker) -> SideThread:
    return SideThread(cast(Any, workers), "beside")


async def test_a_turn_of_the_loop_does_so_much_of_all_streams_together() -> None:
    thread = side_thread()
    for _ in range(2):
        assert not thread.takes(TURN_US / 2) and not thread.takes(TURN_US / 2)
        assert thread.takes(1.0) and thread.takes(TURN_US), "nothing is left of this turn"
        assert not thread.takes(0.0), "what takes no time is never worth a call"
        await asyncio.sleep(0)


async def test_what_is_too_long_for_any_turn_leaves_the_turn_to_the_others() -> None:
    thread = side_thread()
    assert thread.takes(TURN_US + 1) and not thread.takes(TURN_US)


@pytest.mark.parametrize("how", Compression)
def test_what_costs_tens_of_milliseconds_is_for_the_thread(how: Compression) -> None:
    """5 MB of text take ZLIB 80 ms, ZSTD 24, LZ4 8 and SNAPPY 5."""
    assert (compress_us(5_000_000, how) > TURN_US) is (how is not Compression.NONE)
    assert compress_us(100, how) < 50
    assert (decompress_us(16 << 20, how) > TURN_US) is (how is not Compression.NONE)


@pytest.mark.real_time
async def test_the_thread_begins_with_its_first_call_and_ends_when_its_calls_have_run() -> None:
    names: list[str] = []

    def workers(name: str) -> ThreadWorker:
        names.append(name)
        return ThreadWorker(name)

    thread, done = side_thread(workers), list[Any]()
    assert names == []
    for _ in range(2):
        thread.worker().submit(
            lambda: (threading.current_thread().name, zlib.compress(bytes(1 << 20))), lambda result, error: None
        )
    thread.worker().submit(lambda: threading.current_thread().name, lambda name, error: done.append(name))
    closing = asyncio.create_task(thread.close())
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="closed"):
        thread.worker()
    await closing
    await thread.close()
    assert names == done == ["beside"] and "beside" not in {each.name for each in threading.enumerate()}


async def test_a_thread_that_was_never_used_never_begins() -> None:
    threads = threading.active_count()
    await side_thread(None).close()
    assert threading.active_count() == threads
