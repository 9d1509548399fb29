"""What a cancelled call leaves: entries that may be stored, and handles that go on. As docs/api.md tells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any

import pytest

import tallystick
from support.fake_bookie import HANG
from support.small_cluster import SmallCluster
from support.waiting import until
from tallystick.admin.cluster import init
from tallystick.bookkeeper.ledger.writer import LedgerWriter
from tallystick.bookkeeper.wire import v2, v3
from tallystick.bookkeeper.wire.values import LedgerState
from tallystick.errors import UsageError


@pytest.fixture
async def cluster() -> AsyncIterator[SmallCluster]:
    made = await SmallCluster().start(3)
    yield made
    await made.close()


async def give_up(call: asyncio.Future[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def begun(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(call)


def held_adds(cluster: SmallCluster) -> int:
    return sum(len(bookie.held or []) for bookie in cluster.bookies.values())


def hold(cluster: SmallCluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.held = []


def release(cluster: SmallCluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.release()


async def contents(cluster: SmallCluster, ledger: int) -> list[bytes]:
    async with cluster.client().open_ledger(ledger) as reader:
        return [entry.data async for entry in reader]


async def test_a_cancelled_append_may_be_stored_and_the_writer_goes_on(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger() as writer:
        hold(cluster)
        append = begun(writer.append(b"given up"))
        batch = begun(writer.append_batch([b"these", b"too"]))
        await until(lambda: held_adds(cluster) == 6)
        await give_up(append)
        await give_up(batch)
        future = writer.append_nowait(b"and this")
        future.cancel()
        release(cluster)
        assert await writer.append(b"the next one") == 4
    assert await contents(cluster, writer.id) == [b"given up", b"these", b"too", b"and this", b"the next one"]


async def test_an_append_that_is_cancelled_while_it_waits_for_room_takes_no_id(cluster: SmallCluster) -> None:
    async with cluster.client(max_inflight_bytes=100).create_ledger() as writer:
        hold(cluster)
        first = begun(writer.append(b"x" * 100))
        await until(lambda: held_adds(cluster) == 2)
        second = begun(writer.append(b"never"))
        await asyncio.sleep(0)
        await give_up(second)
        release(cluster)
        assert (await first, await writer.append(b"y")) == (0, 1)
    assert await contents(cluster, writer.id) == [b"x" * 100, b"y"]


async def test_a_cancelled_drain_cancels_no_append(cluster: SmallCluster) -> None:
    async with cluster.client().create_ledger() as writer:
        hold(cluster)
        future, drain = writer.append_nowait(b"x"), begun(writer.drain())
        await until(lambda: held_adds(cluster) == 2)
        await give_up(drain)
        release(cluster)
        assert await future == 0


async def test_a_cancelled_close_of_a_writer_goes_on(cluster: SmallCluster) -> None:
    writer = await cluster.client().create_ledger()
    hold(cluster)
    future, close = writer.append_nowait(b"x"), begun(writer.close())
    await until(lambda: held_adds(cluster) == 2)
    await give_up(close)
    release(cluster)
    await writer.close()
    assert (await future, writer.metadata.state, writer.metadata.last_entry) == (0, LedgerState.CLOSED, 0)


async def test_a_block_that_is_cancelled_closes_its_ledger(cluster: SmallCluster) -> None:
    bk, inside = cluster.client(), asyncio.Event()
    made: list[LedgerWriter] = []

    async def block() -> None:
        async with bk.create_ledger() as writer:
            made.append(writer)
            await writer.append(b"x")
            inside.set()
            await asyncio.Event().wait()

    task = begun(block())
    await inside.wait()
    await give_up(task)
    assert (await bk.ledger_metadata(made[0].id)).last_entry == 0


async def test_a_cancelled_creation_may_leave_an_empty_ledger(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bk = cluster.client()
    create, made = bk.context.driver.create_ledger, asyncio.Event()

    async def create_and_wait(*arguments: Any, **more: Any) -> Any:
        found = await create(*arguments, **more)
        made.set()
        await asyncio.Event().wait()
        return found

    async def creation() -> LedgerWriter:
        return await bk.create_ledger()

    with monkeypatch.context() as slow:
        slow.setattr(bk.context.driver, "create_ledger", create_and_wait)
        task = begun(creation())
        await made.wait()
        await give_up(task)
    assert (await bk.ledger_metadata(0)).state is LedgerState.OPEN
    assert await (await bk.create_ledger()).append(b"x") == 0


def hang(cluster: SmallCluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.misbehave = lambda request: None if isinstance(request, v2.AddFrame) else HANG
        bookie.script_v3 = lambda request: None


def mend(cluster: SmallCluster) -> None:
    for bookie in cluster.bookies.values():
        bookie.misbehave = bookie.script_v3 = None


def asked(cluster: SmallCluster) -> int:
    requests = [one for bookie in cluster.bookies.values() for one in (*bookie.requests, *bookie.requests_v3)]
    return sum(isinstance(request, v2.ReadFrame | v3.ReadLacRequest) for request in requests)


@pytest.mark.parametrize("recover", [False, True])
async def test_a_cancelled_opening_leaves_no_task_and_no_watch(cluster: SmallCluster, recover: bool) -> None:
    writer = await cluster.client().create_ledger()
    await writer.append_batch([b"x", b"y"])
    bk = cluster.client(2)
    hang(cluster)
    tasks, watches = asyncio.all_tasks(), len(cluster.store._tree.watchers)

    async def opening() -> Any:
        return await bk.open_ledger(writer.id, recover=recover)

    task = begun(opening())
    await until(lambda: asked(cluster) >= 3)
    await give_up(task)
    await until(lambda: asyncio.all_tasks() == tasks)
    assert len(cluster.store._tree.watchers) == watches
    mend(cluster)
    state = (await bk.ledger_metadata(writer.id)).state
    assert state is (LedgerState.IN_RECOVERY if recover else LedgerState.OPEN)
    async with cluster.client(3).open_ledger(writer.id, recover=True) as reader:
        assert reader.last_entry == 1


@pytest.mark.parametrize("tailing", [False, True])
async def test_a_cancelled_read_leaves_a_reader_that_reads_on(cluster: SmallCluster, tailing: bool) -> None:
    async with cluster.client().create_ledger() as writer:
        await writer.append_batch([b"x"] * 10)
    tasks = asyncio.all_tasks()
    async with cluster.client(2).open_ledger(writer.id) as reader:
        hang(cluster)
        task = begun(anext(reader.follow(0) if tailing else reader.read(0, 9)))
        await until(lambda: any(bookie.requests for bookie in cluster.bookies.values()))
        await give_up(task)
        await until(lambda: asyncio.all_tasks() == tasks)
        mend(cluster)
        assert [entry.id async for entry in reader.read(0, 9)] == list(range(10))


async def test_a_cancelled_close_of_a_client_goes_on(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bk = cluster.client()
    await (await bk.create_ledger()).append(b"x")
    may_end, driver = asyncio.Event(), bk.context.driver
    end = driver.close

    async def slowly() -> None:
        await may_end.wait()
        await end()

    monkeypatch.setattr(driver, "close", slowly)
    first = begun(bk.close())
    await until(lambda: not any(bookie.connections for bookie in cluster.bookies.values()))
    await give_up(first)
    with pytest.raises(UsageError, match="closed"):
        await bk.bookies()
    second = begun(bk.close())
    await asyncio.sleep(0)
    assert not second.done()
    may_end.set()
    await second


@pytest.mark.real_time
async def test_a_cancelled_connect_leaves_no_thread() -> None:
    pytest.importorskip("kazoo")
    threads = set(threading.enumerate())

    async def connecting() -> Any:
        return await tallystick.connect("zk+hierarchical://127.0.0.1:1/ledgers")

    task = begun(connecting())
    await until(lambda: len(set(threading.enumerate()) - threads) >= 2)
    await give_up(task)

    def left() -> list[str]:
        return [one.name for one in set(threading.enumerate()) - threads if "asyncio" not in one.name]

    await until(lambda: not left())
    assert left() == []


class Suspended:
    """Waits for nothing that a loop could bring."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_a_block_that_is_ended_outside_of_its_loop_leaves_no_task() -> None:
    """As the garbage collector ends what nobody runs any more: a task made then would belong to no loop, or another."""
    loop = asyncio.new_event_loop()

    async def opening() -> tallystick.BookKeeper:
        await init("memory://ended-outside")
        return await tallystick.connect("memory://ended-outside")

    async def block() -> None:
        async with bk:
            await Suspended()

    bk = loop.run_until_complete(opening())
    work = block()
    work.send(None)
    with pytest.raises(UsageError, match="the event loop that it was made on"):
        work.close()
    assert asyncio.all_tasks(loop) == set()
    loop.run_until_complete(bk.close())
    loop.close()
