"""Buffers of long responses: used again once nobody looks at them, and given back when none comes any more."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import Sequence

from tallystick.bookkeeper.ledger.response_buffers import MOST_BUFFERS, UNUSED_S, ResponseBuffers
from tallystick.codec.reads import EvenEntries

SIZE = 300_000


async def test_a_buffer_is_used_again_once_no_view_is_left() -> None:
    buffers = ResponseBuffers()
    first = buffers.take(SIZE)
    assert (len(first), first.readonly) == (SIZE, False)
    memory, part = first.obj, first[5:7]
    del first
    assert buffers.take(SIZE).obj is not memory, "a part of it is in use"
    del part
    entries = EvenEntries(memoryview(memory), 96)
    assert buffers.take(SIZE).obj is not memory
    del entries
    kept = id(memory)
    del memory
    assert id(buffers.take(SIZE - 1000).obj) == kept
    buffers.close()


async def test_nothing_changes_under_who_looks() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance, buffers = random.Random(seed), ResponseBuffers()
    held: list[tuple[int, Sequence[memoryview]]] = []
    for number in range(1000):
        view = buffers.take(chance.randrange(1, 600))
        view[:] = bytes([number % 256]) * len(view)
        held.append((number % 256, [view[: len(view) // 2], memoryview(view)[len(view) // 2 :]]))
        del view
        while len(held) > chance.randrange(1, 20):
            value, parts = held.pop(chance.randrange(len(held)))
            assert all(set(part) <= {value} for part in parts)
            del parts
    buffers.close()


async def test_few_are_held_and_none_for_long() -> None:
    loop, buffers = asyncio.get_running_loop(), ResponseBuffers()
    views = [buffers.take(SIZE) for _ in range(3 * MOST_BUFFERS)]
    assert len(buffers._buffers) == MOST_BUFFERS
    assert len({id(view.obj) for view in views}) == len(views)
    views.clear()
    began = loop.time()
    while loop.time() < began + 3 * UNUSED_S:
        buffers.take(SIZE)
        await asyncio.sleep(UNUSED_S / 2)
        assert buffers._buffers, "they are in use"
    await asyncio.sleep(2 * UNUSED_S)
    assert (buffers._buffers, buffers._timer) == ([], None)
    assert len(buffers.take(SIZE)) == SIZE
    buffers.close()
    gone = weakref.ref(buffers)
    del buffers
    gc.collect()
    assert gone() is None


async def test_a_short_response_takes_no_long_buffer() -> None:
    buffers = ResponseBuffers()
    kept = id(buffers.take(5_000_000).obj)
    assert id(buffers.take(100_000).obj) != kept
    buffers.close()
