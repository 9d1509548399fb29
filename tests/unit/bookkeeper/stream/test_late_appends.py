"""Appends that are encoded beside the loop: none overtakes another, and each is answered once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable
from typing import Any, cast

import pytest

from support.small_cluster import SmallCluster
from support.streams import NAME
from support.workers import HeldWorker
from tallystick.bookkeeper.stream import encoding
from tallystick.bookkeeper.stream.late_appends import Encoded, LateAppends, LateEntry
from tallystick.bookkeeper.stream.settings import StreamSettings
from tallystick.bookkeeper.stream.side_thread import SideThread, compress_us
from tallystick.bookkeeper.stream.stream import Stream
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.bookkeeper.wire.pulsar_messages import OutMessage, encode_entry
from tallystick.bookkeeper.wire.stream_values import Position
from tallystick.errors import (
    EarlierAppendFailed,
    MetadataUnavailable,
    StreamClosed,
    StreamFenced,
    StreamFull,
    StreamTerminated,
    TallyError,
    UsageError,
)

LONG = b"long " * 200_000  # a megabyte: ZLIB takes it 16 ms, as is estimated
COMPRESSED = StreamSettings(compression="zlib", max_entries_per_ledger=4)


class Late:
    """A queue whose entries are encoded when the test says so, and what came out of it."""

    def __init__(self) -> None:
        self.worker = HeldWorker()
        self.thread = SideThread(lambda name: self.worker, "encode")
        self.out: list[Any] = []
        self.encoded = list[bytes]()  # those that were, for whoever
        self.queue = LateAppends(self._encoded)

    def _encoded(self, encoded: Encoded) -> None:
        self.out.append(encoded.entry if encoded.error is None else encoded.error)
        self.out += [entry for (entry, _), _ in encoded.behind]
        assert encoded.behind_bytes == sum(size for _, size in encoded.behind)

    def late(self, entry: bytes, error: Exception | None = None) -> asyncio.Future[Position]:
        def encode() -> bytes:
            self.encoded.append(entry)
            if error is not None:
                raise error
            return entry

        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self.queue.append_late(LateEntry(10, encode, self.thread), future)
        return future

    def short(self, entry: bytes) -> asyncio.Future[Position]:
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self.queue.append((entry, future), len(entry))
        return future


async def test_what_is_behind_waits_for_what_is_before() -> None:
    late, error = Late(), UsageError("it cannot be")
    late.late(b"a")
    late.short(b"bb")
    late.late(b"c", error)
    late.late(b"d")
    late.short(b"eee")
    assert (len(late.queue), late.queue.bytes, late.out) == (5, 35, [])
    second, third = late.worker.given.pop(1), late.worker.given.pop(1)
    second()
    third()
    assert late.out == []
    late.worker.do_one()
    assert late.out == [b"a", b"bb", error, b"d", b"eee"] and (len(late.queue), late.queue.bytes) == (0, 0)


async def test_what_nobody_wants_any_more_is_not_encoded() -> None:
    """Or a client that closes would wait for all of it."""
    late = Late()
    futures = [late.late(b"a", ValueError("nobody asks for it")), late.short(b"b"), late.late(b"c")]
    waiting = asyncio.create_task(late.queue.wait())
    await asyncio.sleep(0)
    assert list(late.queue.take_all()) == futures and (len(late.queue), late.queue.bytes) == (0, 0)
    await waiting
    late.late(b"d")
    for _ in range(3):
        late.worker.do_one()
    assert late.out == late.encoded == [b"d"]


async def test_who_waits_for_all_waits_for_those_that_come_meanwhile() -> None:
    late = Late()
    await late.queue.wait()
    late.late(b"a")
    waiting, cancelled = [asyncio.create_task(late.queue.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    cancelled.cancel()
    late.worker.do_one()
    late.late(b"b")
    await asyncio.sleep(0)
    assert not waiting.done()
    late.worker.do_one()
    await waiting


# -- of a stream ------------------------------------------------------------------------------------------------------


async def open_one(cluster: SmallCluster, settings: StreamSettings = COMPRESSED) -> Stream:
    return await cluster._clients[0].open_stream(NAME, settings=settings)


async def stored(cluster: SmallCluster) -> list[bytes]:
    async with cluster.client(77).read_stream(NAME) as reader:
        return [message.data async for message in reader.read()]


def names(messages: Iterable[bytes]) -> list[bytes]:
    return [message.removeprefix(LONG) for message in messages]


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_long_and_short_appends_keep_their_order_across_ledgers(cluster: SmallCluster) -> None:
    rng = random.Random(3)
    data = [rng.choice((LONG, b"")) + b"%d" % n for n in range(40)]
    stream = await cluster.client().open_stream(NAME, settings=COMPRESSED)
    futures = [stream.append_nowait(each) for each in data]
    await stream.close()
    assert [future.result() for future in futures] == [Position(n // 4, n % 4) for n in range(40)]
    assert await stored(cluster) == data


@pytest.mark.real_time
@pytest.mark.parametrize("compression", ["lz4", "zlib", "zstd", "snappy"])
async def test_nothing_long_is_compressed_on_the_loop(
    cluster: SmallCluster, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 MB of ZLIB were a turn of 114 ms, and so were 40 appends of 100 kB in one turn."""
    inline: list[int] = []

    def encoded(messages: Any, **fields: Any) -> bytes:
        if threading.current_thread() is threading.main_thread():
            inline.append(sum(len(message.data) for message in messages))
        return encode_entry(messages, **fields)

    monkeypatch.setattr(encoding, "encode_entry", encoded)
    settings = StreamSettings(compression=compression)
    async with cluster.client().open_stream(NAME, settings=settings) as stream:
        data = [random.Random(1).randbytes(2500) * 2000, *[b"%d" % n + bytes(100_000) for n in range(200)]]
        futures = [stream.append_nowait(each) for each in data]
        of_a_turn = list(inline)
        await asyncio.gather(*futures)
        await stream.append(b"short")
        assert inline[len(of_a_turn) :] == [5]
    assert len(data[0]) not in inline and of_a_turn
    assert compress_us(sum(of_a_turn), Compression.parse(compression)) < 5_000
    assert await stored(cluster) == [*data, b"short"]


async def test_what_is_encoded_counts_as_pending(cluster: SmallCluster, held: HeldWorker) -> None:
    stream = await open_one(cluster, StreamSettings(compression="zlib", max_pending_bytes=2 * len(LONG)))
    futures = [stream.append_nowait(LONG) for _ in range(2)]
    with pytest.raises(StreamFull):
        stream.append_nowait(b"")
    waiting = asyncio.create_task(stream.append(b"waits"))
    await turns()
    assert stream.state()["pendingAddEntriesCount"] == 2 and not waiting.done()
    held.do_one()
    assert await futures[0] == Position(0, 0)
    await turns()
    assert not waiting.done() and not futures[1].done()
    held.do_one()
    assert await waiting == Position(0, 2)
    await stream.close()


async def test_a_roll_over_and_an_end_come_behind_what_was_appended_before(
    cluster: SmallCluster, held: HeldWorker
) -> None:
    stream = await open_one(cluster)
    futures = [stream.append_nowait(LONG + b"0"), stream.append_nowait(b"1")]
    rolling = asyncio.create_task(stream.roll_over())
    await turns()
    assert not rolling.done()
    held.do_one()
    await rolling
    assert [await future for future in futures] == [Position(0, 0), Position(0, 1)]
    futures = [stream.append_nowait(LONG + b"2"), stream.append_nowait(b"3")]
    ending = asyncio.create_task(stream.terminate())
    await turns()
    with pytest.raises(StreamTerminated):
        stream.append_nowait(b"4")
    held.do_one()
    assert await ending == Position(1, 1) and [await future for future in futures] == [Position(1, 0), Position(1, 1)]
    await stream.close()
    assert names(await stored(cluster)) == [b"0", b"1", b"2", b"3"]


async def test_a_stream_that_closes_stores_what_is_encoded_meanwhile(cluster: SmallCluster, held: HeldWorker) -> None:
    stream = await open_one(cluster)
    futures = [stream.append_nowait(LONG + b"%d" % n) for n in range(6)]
    futures[1].cancel()
    closing = asyncio.create_task(stream.close())
    await turns()
    with pytest.raises(StreamClosed):
        stream.append_nowait(b"")
    while held.given:
        held.do_one()
        await turns()
    await closing
    assert [n for n, future in enumerate(futures) if not future.cancelled() and future.result()] == [0, 2, 3, 4, 5]
    assert names(await stored(cluster)) == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("how", ["fenced", "aborted", "failed"])
async def test_each_is_answered_once_when_the_stream_ends_before_they_are_encoded(
    cluster: SmallCluster, held: HeldWorker, how: str
) -> None:
    stream = await open_one(cluster)
    await stream.append(b"before")
    futures = [stream.append_nowait(LONG), stream.append_nowait(b"behind")]
    expected: type[TallyError] = StreamClosed
    if how == "aborted":
        stream.abort()
    elif how == "fenced":
        other = await cluster.client(2).open_stream(NAME, takeover=True, settings=COMPRESSED)
        held.do_one()
        expected = StreamFenced
    else:
        stream._owner.flow.fail_all(StreamClosed(stream=NAME))
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [expected] * 2
    if how != "fenced":
        assert not any(cast(TallyError, outcome).ambiguous for outcome in outcomes)
        while held.given:
            held.do_one()
    await turns()
    if how == "failed":
        assert await stream.append(b"goes on") == Position(0, 1)
        await stream.close()
    elif how == "fenced":
        await other.close()


async def test_an_entry_that_turns_out_to_be_too_long_fails_alone(cluster: SmallCluster, held: HeldWorker) -> None:
    stream = await open_one(cluster)
    noise = random.Random(1).randbytes(6_000_000)
    futures = [stream.append_nowait(LONG), stream.append_nowait(noise, key="k"), stream.append_nowait(b"behind")]
    for _ in range(2):
        held.do_one()
    first, second, third = await asyncio.gather(*futures, return_exceptions=True)
    assert (first, third) == (Position(0, 0), Position(0, 1))
    assert isinstance(second, UsageError) and "too long" in str(second)
    await stream.close()


async def test_numbers_go_with_what_is_encoded_late(cluster: SmallCluster, held: HeldWorker) -> None:
    """What is refused, as it is too long, holds up no number behind it: it is refused each time."""
    stream = await open_one(cluster)
    await stream.append(b"0", producer="p", sequence=0)
    noise = random.Random(1).randbytes(6_000_000)
    first = stream.append_nowait(LONG, producer="p", sequence=1)
    repeat = stream.append_nowait(LONG, producer="p", sequence=1)
    refused = stream.append_nowait(noise, producer="p", sequence=2)
    behind = stream.append_nowait(b"3", producer="p", sequence=3)
    assert len(held.given) == 2
    for _ in range(2):
        held.do_one()
    assert await first == await repeat == Position(0, 1) and await behind == Position(0, 2)
    with pytest.raises(UsageError):
        await refused
    assert await stream.append(b"4", producer="p", sequence=4) == Position(0, 3)
    await stream.close()


@pytest.mark.parametrize("first", [1, 3])
async def test_a_repeat_is_known_though_what_came_behind_it_was_refused_late(
    cluster: SmallCluster, held: HeldWorker, first: int
) -> None:
    """It was forgotten while it was on its way, and stored once more; ``first``: also a part of a batch."""
    stream = await open_one(cluster, StreamSettings(compression="zlib"))
    await stream.append(b"0", producer="p", sequence=0)
    batch = asyncio.create_task(stream.append_batch([b"1", b"2", b"3"], producer="p", sequence=1))
    await asyncio.sleep(0)
    refused = stream.append_nowait(random.Random(1).randbytes(6_000_000), producer="p", sequence=4)
    held.do_one()
    with pytest.raises(UsageError):
        await refused
    assert not batch.done()
    repeated = [stream.append_nowait(b"%d" % n, producer="p", sequence=n) for n in (first, 3)]
    await asyncio.gather(batch, *repeated)
    assert await stream.append(b"4", producer="p", sequence=4) == Position(0, 2)
    await stream.close()
    assert await stored(cluster) == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_higher_number_waits_for_the_failed_ones_though_one_between_was_refused_late(
    cluster: SmallCluster, held: HeldWorker
) -> None:
    """Behind it a repeat of what failed would pass for stored."""
    stream = await open_one(cluster, StreamSettings(compression="zlib"))
    await stream.append(b"0", producer="p", sequence=0)
    stream._owner.flow._flush_scheduled = True  # as if no ledger took it
    failing = stream.append_nowait(b"1", producer="p", sequence=1)
    refused = stream.append_nowait(random.Random(1).randbytes(6_000_000), producer="p", sequence=2)
    held.do_one()
    with pytest.raises(UsageError):
        await refused
    assert not failing.done()
    stream._owner.flow.fail_all(MetadataUnavailable())
    with pytest.raises(EarlierAppendFailed):
        await stream.append(b"3", producer="p", sequence=3)
    with pytest.raises(MetadataUnavailable):
        await failing
    stream._owner.flow._flush_scheduled = False
    for number in (1, 3):
        await stream.append(b"%d" % number, producer="p", sequence=number)
    await stream.close()
    assert await stored(cluster) == [b"0", b"1", b"3"]


async def test_what_is_encoded_later_and_waits_for_the_numbers_counts(cluster: SmallCluster) -> None:
    async with cluster.client().open_stream(NAME, settings=StreamSettings(max_pending_bytes=50_000)) as stream:
        numbered = stream.append_nowait(b"0", producer="p", sequence=0)
        first = asyncio.create_task(stream.append_batch([b""] * 2000))
        await asyncio.sleep(0)
        with pytest.raises(StreamFull):
            stream.append_nowait(b"no room")
        assert (await numbered).entry == 0 and (await first)[-1] == Position(0, 1, 1999)


async def test_a_quota_knows_what_is_encoded(cluster: SmallCluster, held: HeldWorker) -> None:
    settings = StreamSettings(
        compression="zlib", backlog_quota_bytes=10_000_000, ensemble=1, write_quorum=1, ack_quorum=1
    )
    stream = await open_one(cluster, settings)
    flow = stream._owner.flow
    await stream.append(b"measured")
    await turns()
    flow.allow(5_000_000)
    stream.append_nowait(LONG)
    assert flow._left == 5_000_000 - OutMessage(LONG).size
    flow.allow(5_000_000)
    assert flow._left == 5_000_000 - OutMessage(LONG).size
    held.do_one()
    await turns()
    flow.allow(5_000_000)
    assert flow._left == 5_000_000
    await stream.close()
