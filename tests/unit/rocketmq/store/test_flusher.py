"""Group commit: one flush at a time, what piles up is the next; a failure is told once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from support.message_stores import SMALL, put_request
from tallystick.errors import StorageError
from tallystick.rocketmq.store import flusher as flusher_module
from tallystick.rocketmq.store.flusher import Flusher
from tallystick.rocketmq.store.store import MessageStore
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import OsDisk
from tallystick.runtime.events import Events
from tallystick.runtime.worker import ThreadWorker


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return MessageStore.open(OsDisk(), str(tmp_path), SMALL, SystemClock(), Events())


class Desk:
    def __init__(self, store: MessageStore, interval_ms: int = 60_000) -> None:
        self.offsets: list[int] = []
        self.errors: list[Exception] = []
        self.news = asyncio.Event()
        self.flusher = Flusher(
            store,
            clock=SystemClock(),
            workers=ThreadWorker,
            interval_ms=interval_ms,
            flushed=self.flushed,
            failed=self.failed,
        )

    def flushed(self, offset: int) -> None:
        self.offsets.append(offset)
        self.news.set()

    def failed(self, error: Exception) -> None:
        self.errors.append(error)
        self.news.set()


async def test_what_is_written_during_a_flush_is_the_next_ones(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, flush = threading.Event(), store.flush
    monkeypatch.setattr(store, "flush", lambda: (held.wait(5), flush())[1])
    desk = Desk(store)
    store.put([put_request(b"1")])
    for _ in range(5):
        desk.flusher.request()
    held.set()
    await desk.news.wait()
    while len(desk.offsets) < 2:
        desk.news.clear()
        await desk.news.wait()
    assert desk.offsets == [store.end] * 2
    assert not desk.flusher._busy, "nobody asked for a third one"
    await desk.flusher.close()


async def test_without_requests_it_flushes_at_intervals(store: MessageStore, tmp_path: Path) -> None:
    desk = Desk(store, interval_ms=10)
    desk.flusher.start()
    store.put([put_request(b"1")])
    await desk.news.wait()
    assert store.flushed == store.end
    await desk.flusher.close()
    assert not (tmp_path / "abort").exists()


async def test_a_failure_is_told_once_and_nothing_is_flushed_after_it(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise StorageError("broken")

    monkeypatch.setattr(store, "flush", fail)
    desk = Desk(store)
    desk.flusher.request()
    await desk.news.wait()
    desk.flusher.request()
    await asyncio.sleep(0)
    assert (len(desk.errors), desk.offsets) == (1, [])
    await desk.flusher.close()


@pytest.mark.rule("H11")
async def test_h11_a_sync_that_would_succeed_behind_a_failed_one_is_not_believed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the failed one should have synced may be lost all the same."""
    errors, flush = [StorageError("broken")], store.flush

    def once() -> int:
        if errors:
            raise errors.pop()
        return flush()

    monkeypatch.setattr(store, "flush", once)
    desk = Desk(store)
    store.put([put_request(b"1")])
    desk.flusher.request()
    await desk.news.wait()
    desk.flusher.request()
    await desk.flusher.close()
    assert (len(desk.errors), desk.offsets) == (1, [])


async def test_what_may_cut_the_log_ends_when_earlier_flushes_are_told(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told later, an offset would be that of what is in the log by then."""
    go_on, flush = threading.Event(), store.flush
    monkeypatch.setattr(store, "flush", lambda: (go_on.wait(10), flush())[1])
    desk = Desk(store)
    (put,) = store.put([put_request(b"1")])
    desk.flusher.request()
    cutting = asyncio.create_task(desk.flusher.between(lambda: "cut"))
    done, _ = await asyncio.wait([cutting], timeout=0.2)
    assert not done
    go_on.set()
    assert (await cutting, desk.offsets) == ("cut", [put.end])
    await desk.flusher.close()


@pytest.mark.rule("H11")
async def test_a_flush_settles_what_it_synced_and_not_what_was_written_meanwhile(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, go_on, flush = threading.Event(), threading.Event(), store.flush

    def slow() -> int:
        offset = flush()
        synced.set()
        go_on.wait(10)
        return offset

    monkeypatch.setattr(store, "flush", slow)
    desk = Desk(store)
    (put,) = store.put([put_request(b"synced")])
    desk.flusher.request()
    await asyncio.to_thread(synced.wait, 10)
    store.put([put_request(b"not synced")])
    go_on.set()
    await desk.news.wait()
    assert desk.offsets == [put.end]
    assert put.end == store.flushed < store.end
    await desk.flusher.close()


async def test_the_store_is_closed_when_the_upkeep_that_runs_has_ended(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, close = threading.Event(), threading.Event(), store.close
    order: list[str] = []

    def maintain(now_ms: int) -> None:
        begun.set()
        may_end.wait(10)
        order.append("maintained")

    def closed() -> None:
        order.append("closed")
        close()

    monkeypatch.setattr(flusher_module, "MAINTAIN_S", 0.0)
    monkeypatch.setattr(store, "maintain", maintain)
    monkeypatch.setattr(store, "close", closed)
    desk = Desk(store)
    desk.flusher.start()
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.create_task(desk.flusher.close())
    for _ in range(10):
        await asyncio.sleep(0)
    await desk.flusher._flushing.run(lambda: None)  # behind whatever it was given
    assert order == []
    may_end.set()
    await closing
    assert order == ["maintained", "closed"]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), StorageError("a disk")])
@pytest.mark.parametrize("call", ["flush", "maintain"])
async def test_no_error_ends_flushes_or_upkeep_in_silence(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(flusher_module, "MAINTAIN_S", 0.0)
    monkeypatch.setattr(store, call, fail)
    desk = Desk(store)
    desk.flusher.start()
    desk.flusher.request()
    while not desk.errors:
        await desk.news.wait()
        desk.news.clear()
    assert desk.errors == [error]
    await desk.flusher.close()
