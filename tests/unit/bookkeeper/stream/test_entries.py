"""Following a stream: from ledger to ledger, while its owner appends, rolls over, trims and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.listed_streams import NAME, ListedStream, pulsar_entry, readers_of
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.bookkeeper.metadata.store import Delete
from tallystick.bookkeeper.stream.messages import StreamMessage
from tallystick.bookkeeper.stream.reader import StreamReader, StreamReaders
from tallystick.bookkeeper.wire import v3
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo
from tallystick.errors import MetadataUnavailable, NoSuchPosition, NoSuchStream, PositionTrimmed, StreamClosed


@pytest.fixture
async def owner(cluster: SmallCluster) -> ListedStream:
    return ListedStream(cluster.client())


@pytest.fixture
async def readers(cluster: SmallCluster) -> AsyncIterator[StreamReaders]:
    made = readers_of(cluster.client(2))
    yield made
    await made.close()


class Follower:
    """Follows in the background. ``failure`` is what ended it, ``done`` is set at the end."""

    def __init__(self, reader: StreamReader, **bounds: Any) -> None:
        self.messages: list[StreamMessage] = []
        self.failure: BaseException | None = None
        self.done = asyncio.Event()
        self._task = asyncio.create_task(self._follow(reader, bounds))

    async def _follow(self, reader: StreamReader, bounds: dict[str, Any]) -> None:
        try:
            async for message in reader.read(follow=True, **bounds):
                self.messages.append(message)
        except Exception as error:
            self.failure = error
        finally:
            self.done.set()

    @property
    def text(self) -> str:
        return "".join(message.data.decode() for message in self.messages)

    async def until(self, text: str) -> None:
        await until(lambda: self.text == text)
        assert self.failure is None

    async def end(self) -> BaseException | None:
        async with asyncio.timeout(30.0):
            await self.done.wait()
        return self.failure


def entries(text: str) -> list[bytes]:
    return [pulsar_entry(letter.encode()) for letter in text]


async def test_messages_come_as_they_are_appended_and_across_ledgers(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create(entries("ab"))
    follower = Follower(await readers.open(NAME))
    await follower.until("ab")
    await owner.append(*entries("cd"))
    await follower.until("abcd")
    for text in ("ef", "g", "hij"):
        await owner.roll()
        await owner.append(*entries(text))
    await follower.until("abcdefghij")
    assert follower.text == "abcdefghij"


async def test_a_message_comes_soon(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create()
    follower, loop = Follower(await readers.open(NAME)), asyncio.get_running_loop()
    await asyncio.sleep(1.0)
    for text in ("a", "ab", "abc"):
        began = loop.time()
        await owner.append(*entries(text[-1]))
        await follower.until(text)
        assert loop.time() - began < 0.5
        await asyncio.sleep(20.0)


@pytest.mark.parametrize("text", ["", "ab"])
async def test_a_follower_of_an_idle_stream_costs_polls_and_no_metadata(
    owner: ListedStream, readers: StreamReaders, cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    await owner.create(entries("before"))
    await owner.append(*entries(text))
    reads, store = 0, readers.lists.catalog.store
    get_many = store.get_many

    async def counting(paths: Any) -> Any:
        nonlocal reads
        reads += 1
        return await get_many(paths)

    Follower(await readers.open(NAME))
    await asyncio.sleep(5.0)
    monkeypatch.setattr(store, "get_many", counting)
    for bookie in cluster.bookies.values():
        bookie.requests_v3.clear()
        bookie.requests.clear()
    await asyncio.sleep(100.0)
    asked = [request for bookie in cluster.bookies.values() for request in bookie.requests_v3]
    assert reads == 0 and not any(bookie.requests for bookie in cluster.bookies.values())
    assert len(asked) <= 3 * 100 / 5 and all(isinstance(request, v3.ReadRequest) for request in asked)


async def test_a_ledger_closed_before_the_next_is_listed(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(entries("ab"))
    await owner.append(*entries("cd"))
    follower = Follower(await readers.open(NAME))
    await owner.close_ledger()
    await follower.until("abcd")
    await asyncio.sleep(60.0)
    assert not follower.done.is_set()
    await owner.roll()
    await owner.append(*entries("ef"))
    await follower.until("abcdef")


async def test_a_ledger_that_somebody_else_closes(
    owner: ListedStream, readers: StreamReaders, cluster: SmallCluster
) -> None:
    await owner.create()
    await owner.append(*entries("ab"))
    follower = Follower(await readers.open(NAME))
    await follower.until("a")
    async with cluster.client(3).open_ledger(owner.info.ledgers[0].ledger, recover=True):
        await follower.until("ab")
    assert not follower.done.is_set()


async def test_an_empty_ledger_that_leaves_the_list_is_no_loss(owner: ListedStream, readers: StreamReaders) -> None:
    """An owner that dies at once leaves it; the next one drops it. Whether its reader was on it or not."""
    await owner.create()
    follower = Follower(await readers.open(NAME))
    await asyncio.sleep(1.0)
    for _ in range(3):
        await owner.roll()
        await asyncio.sleep(1.0)
    assert len(owner.info.ledgers) == 1
    await owner.roll()
    await owner.roll()
    await owner.append(*entries("ab"))
    await follower.until("ab")


async def test_the_end_of_a_terminated_stream(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(entries("ab"))
    reader = await readers.open(NAME)
    follower = Follower(reader)
    await owner.append(*entries("cd"))
    await owner.terminate()
    assert await follower.end() is None and follower.text == "abcd"
    again = Follower(reader)
    assert await again.end() is None and again.text == "abcd"
    assert [message.data async for message in reader.read()] == [b"a", b"b", b"c", b"d"]
    assert await reader.last_confirmed() == owner.info.terminated


async def test_a_terminated_stream_ends_where_it_says(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create()
    await owner.append(*entries("abc"))
    await owner.tell_lac()
    ledger = owner.info.ledgers[0].ledger
    await owner.write(StreamInfo(owner.info.ledgers, terminated=Position(ledger, 1)))
    follower = Follower(await readers.open(NAME))
    assert await follower.end() is None and follower.text == "ab"


@pytest.mark.parametrize("closed", [False, True])
async def test_a_stream_that_is_deleted_ends_its_followers(
    owner: ListedStream, readers: StreamReaders, closed: bool
) -> None:
    await owner.create(entries("ab"))
    follower = Follower(await readers.open(NAME))
    await follower.until("ab")
    if closed:
        await owner.close_ledger()
        await asyncio.sleep(1.0)
    for each in owner.info.ledgers:
        await owner.client.delete_ledger(each.ledger)
    await asyncio.sleep(2.0)
    assert not follower.done.is_set()
    await owner.catalog.store.change(Delete(owner.catalog.paths.stream(NAME)))
    failure = await follower.end()
    assert isinstance(failure, NoSuchStream) and failure.stream == NAME


async def test_a_stream_whose_list_is_emptied_before_it_is_deleted(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(entries("ab"), entries("cd"))
    follower = Follower(await readers.open(NAME))
    await follower.until("abcd")
    ledgers = owner.info.ledgers
    await owner.write(StreamInfo())
    for each in ledgers:
        await owner.client.delete_ledger(each.ledger)
    await asyncio.sleep(20.0)
    await owner.delete()
    assert isinstance(await follower.end(), NoSuchStream)


async def test_one_that_is_behind_in_a_stream_that_is_deleted(owner: ListedStream, readers: StreamReaders) -> None:
    """Its list is emptied first: that is no trimming."""
    await owner.create(entries("ab"), entries("cd"))
    reading = (await readers.open(NAME)).read(follow=True)
    assert [(await anext(reading)).data for _ in range(2)] == [b"a", b"b"]
    ledgers = owner.info.ledgers
    await owner.write(StreamInfo())
    for each in ledgers:
        await owner.client.delete_ledger(each.ledger)
    waiting = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(20.0)
    assert not waiting.done()
    await owner.delete()
    with pytest.raises(NoSuchStream):
        await waiting


async def test_a_reader_that_is_closed_while_it_waits_for_a_ledger(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(entries("ab"))
    await owner.close_ledger()
    reader = await readers.open(NAME)
    follower = Follower(reader)
    await follower.until("ab")
    await asyncio.sleep(1.0)
    await reader.close()
    assert isinstance(await follower.end(), StreamClosed)


async def test_a_follower_hears_what_was_trimmed_before_it_could_read_it(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create(entries("ab"))
    reading = (await readers.open(NAME)).read(follow=True)
    assert [(await anext(reading)).data for _ in range(2)] == [b"a", b"b"]
    await owner.append(*entries("cd"))
    for text in ("ef", "gh"):
        await owner.roll()
        await owner.append(*entries(text))
    await owner.trim(3)
    with pytest.raises(PositionTrimmed) as told:
        await anext(reading)
    assert told.value.first == Position(owner.info.ledgers[0].ledger, 0)


async def test_a_follower_that_read_all_of_what_was_trimmed_goes_on(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create(entries("ab"))
    follower = Follower(await readers.open(NAME))
    await owner.append(*entries("cd"))
    await owner.roll()
    await follower.until("abcd")
    await owner.trim(2)
    await owner.append(*entries("ef"))
    await follower.until("abcdef")
    assert follower.failure is None


async def test_a_follower_may_begin_where_nothing_is_yet(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.catalog.create(NAME)
    async with readers.open(NAME) as reader:
        follower = Follower(reader)
        await asyncio.sleep(1.0)
        await owner.roll()
        await owner.append(*entries("ab"))
        await follower.until("ab")
        assert follower.failure is None


async def test_a_follower_may_begin_beyond_what_is_known_to_be_confirmed(
    owner: ListedStream, readers: StreamReaders
) -> None:
    await owner.create()
    await owner.append(*entries("abc"))
    ledger = owner.info.ledgers[0].ledger
    reader = await readers.open(NAME)
    follower, too_far = Follower(reader, start=Position(ledger, 2)), Follower(reader, start=Position(ledger, 5))
    await follower.until("c")
    await owner.append(*entries("d"))
    await owner.roll()
    await owner.append(*entries("ef"))
    await follower.until("cdef")
    failure = await too_far.end()
    assert isinstance(failure, NoSuchPosition) and failure.position == Position(ledger, 5)


async def test_a_follower_ends_before_its_end(owner: ListedStream, readers: StreamReaders) -> None:
    await owner.create(entries("ab"))
    ledger = owner.info.ledgers[-1].ledger
    reader = await readers.open(NAME)
    in_open, behind = Follower(reader, end=Position(ledger, 1)), Follower(reader, end=Position(ledger, 7))
    await owner.append(*entries("c"))
    assert await in_open.end() is None and in_open.text == "abc"
    await owner.append(*entries("d"))
    await owner.roll()
    assert await behind.end() is None and behind.text == "abcd"


async def test_metadata_that_is_away_at_a_roll_over(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await owner.create(entries("ab"))
    follower = Follower(await readers.open(NAME))
    await follower.until("ab")
    await owner.close_ledger()
    await asyncio.sleep(1.0)
    store = readers.lists.catalog.store
    sync = store.sync

    async def away() -> Any:
        raise MetadataUnavailable

    monkeypatch.setattr(store, "sync", away)
    await owner.roll()
    await owner.append(*entries("cd"))
    await asyncio.sleep(30.0)
    assert follower.text == "ab" and not follower.done.is_set()
    monkeypatch.setattr(store, "sync", sync)
    await follower.until("abcd")


@pytest.mark.parametrize(("rolls", "is_lost"), [(1, False), (2, True)])
async def test_writes_of_the_list_that_are_seen_as_one(
    owner: ListedStream, readers: StreamReaders, monkeypatch: pytest.MonkeyPatch, rolls: int, is_lost: bool
) -> None:
    """A Pulsar broker rolls over and trims at once. What it trimmed was read, or came and went unseen."""
    await owner.create()
    await owner.append(*entries("ab"))
    follower = Follower(await readers.open(NAME))
    await owner.close_ledger()
    await follower.until("ab")
    store = readers.lists.catalog.store

    async def away() -> Any:
        raise MetadataUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(store, "sync", away)
        for _ in range(rolls):
            await owner.roll()
            await owner.append(*entries("cd"))
        await owner.trim(rolls)
    if is_lost:
        failure = await follower.end()
        assert isinstance(failure, PositionTrimmed) and follower.text == "ab"
        assert failure.first == Position(owner.info.ledgers[0].ledger, 0)
    else:
        await follower.until("abcd")


async def test_a_hundred_followers_share_the_list(
    owner: ListedStream, readers: StreamReaders, cluster: SmallCluster
) -> None:
    await owner.create(entries("ab"))
    opened = [await readers.open(NAME) for _ in range(100)]
    followers = [Follower(reader) for reader in opened]
    for text in ("cd", "ef"):
        await owner.append(*entries(text))
        await owner.roll()
    for follower in followers:
        await follower.until("abcdef")
    for reader in opened:
        await reader.close()
    assert not readers.lists._lists
