"""One connection: pieces of frames, answers that nobody takes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.bookies import Home, adds, codes, read, talking
from support.waiting import until
from tallystick.bookkeeper.bookie.bookie import Bookie
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.v2 import Code


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[Bookie]:
    home = Home(tmp_path)
    await home.found()
    async with home.running() as made:
        yield made


async def test_a_frame_of_5_mib_arrives_in_pieces(bookie: Bookie) -> None:
    frame = adds(1, [0], random.Random(1).randbytes(5 * 1024 * 1024))
    async with talking(bookie) as peer:
        for at in range(0, len(frame), 700_001):
            peer.writer.write(frame[at : at + 700_001])
            await peer.writer.drain()
        stored = await peer.frame()
        assert stored is not None
        assert codes(stored) == [(v2.Op.ADD, Code.OK, 1, 0)]
        answer = await peer.answer(read(1, 0))
        assert bytes(answer.entry_bytes) == frame[28:]


async def test_a_peer_that_does_not_take_its_answers_is_not_read(bookie: Bookie) -> None:
    entries, asked = 20, 3000
    async with talking(bookie) as good:
        good.writer.write(adds(1, range(entries), bytes(100_000)))
        await good.reader.readexactly(entries * 28)
        async with talking(bookie) as slow:
            slow.writer.write(b"".join(read(1, number % entries) for number in range(asked)))
            await until(lambda: bookie.counts.reads > 0)
            before = -1
            while before != bookie.counts.reads:  # until it makes no progress any more
                before = bookie.counts.reads
                for _ in range(20):
                    assert await good.code(read(1, 0)) == Code.OK
                before += 20
            assert bookie.counts.reads < asked
            got = 0
            while got < asked:
                frame = await slow.frame()
                assert frame is not None
                got += 1
