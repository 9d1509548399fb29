"""The log of a running broker: what is dispatched when, and what stands still is tried again."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from support.bookies import SpyDisk
from support.brokers import SMALL, Bench, benched, pull_command, send_command
from support.waiting import until
from tallystick.errors import DiskFull, StorageError
from tallystick.rocketmq.broker import log as log_module
from tallystick.rocketmq.broker import saver as saver_module
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.broker.registration import Registrar
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.ha.master import HaMaster
from tallystick.rocketmq.ha.slave import HaSlave
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.store import reput as reput_module
from tallystick.rocketmq.store.consume_queue import ConsumeQueue
from tallystick.rocketmq.wire.values import PullFlag


async def test_a_large_backlog_is_dispatched_in_parts(tmp_path: Path) -> None:
    """Each part is a turn of the loop: who asks for something else meanwhile does not wait for all of it."""
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        turns: list[int] = []
        reput = broker.parts.store.reput

        def small_parts(limit_bytes: int = 0) -> object:
            turns.append(broker.parts.store.reput_offset)
            return reput(2000)

        broker.parts.store.reput = small_parts  # type: ignore[method-assign,assignment]
        opaques = [peer.send(send_command(body=bytes(1500))) for _ in range(20)]
        for opaque in opaques:
            await peer.answer(opaque)
        store = broker.parts.store
        await until(lambda: store.reput_offset == store.end)
        assert len(turns) >= 10
        assert len((await peer.ask(pull_command())).body) == store.end


async def test_a_queue_offset_that_jumps_is_reached_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reput_module, "FILL_UNITS", 100)
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer, store = await bench.peer(broker), broker.parts.store
        await peer.ask(send_command())
        await until(lambda: store.reput_offset == store.end)
        [queue] = store.replicated.next_offsets
        store._appender.next_offsets[queue] += 1000
        await peer.ask(send_command())
        await until(lambda: store.reput_offset == store.end)
        assert store.queue_range(*queue) == (0, 1002)


async def test_dispatch_goes_on_when_the_disk_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RETRY_S", 0.02)
    async with benched(tmp_path) as bench:
        seldom = replace(SMALL, flush_interval_ms=600_000)  # a flush would dispatch too
        broker = await bench.broker(bench.settings(store=seldom))
        peer = await bench.peer(broker)
        with monkeypatch.context() as full:
            full.setattr(ConsumeQueue, "write", _full)
            assert (await peer.ask(send_command())).code == 0
            assert (await peer.ask(pull_command())).code == 19
            assert (await peer.ask(send_command())).code == 14
        store = broker.parts.store
        await until(lambda: store.reput_offset == store.end)
        assert (await peer.ask(send_command())).code == 0
        assert (await peer.ask(pull_command())).fields["nextBeginOffset"] == "2"


async def test_while_the_disk_is_full_no_pull_makes_dispatch_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "RETRY_S", 600.0)
    tried: list[None] = []

    def full(*_: object, **__: object) -> None:
        tried.append(None)
        raise DiskFull("no room")

    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(store=replace(SMALL, flush_interval_ms=600_000)))
        peer = await bench.peer(broker)
        with monkeypatch.context() as filled:
            filled.setattr(ConsumeQueue, "write", full)
            assert (await peer.ask(send_command())).code == 0
            await until(lambda: tried)
            for _ in range(5):
                assert (await peer.ask(pull_command())).code == 19
            assert len(tried) == 1


async def test_while_the_disk_is_full_nothing_that_is_appended_makes_dispatch_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave appends on, until much waits; and dispatch may have lingered when a pull came."""
    monkeypatch.setattr(log_module, "RETRY_S", 600.0)
    monkeypatch.setattr(log_module, "LINGER_S", 600.0)
    tried: list[None] = []

    def full(*_: object, **__: object) -> None:
        tried.append(None)
        raise DiskFull("no room")

    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(store=replace(SMALL, flush_interval_ms=600_000)))
        peer = await bench.peer(broker)
        with monkeypatch.context() as filled:
            filled.setattr(ConsumeQueue, "write", full)
            assert (await peer.ask(send_command())).code == 0
            assert (await peer.ask(pull_command())).code == 19
            assert len(tried) == 1
            filled.setattr(log_module, "LINGER_BYTES", 1)
            for _ in range(3):
                broker.log._appended()
                await asyncio.sleep(0.002)
            assert len(tried) == 1


def _full(*_: object, **__: object) -> None:
    raise DiskFull("no room")


@pytest.mark.rule("H8", "H13")
async def test_h8_what_a_slave_appends_wakes_who_waits_there(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await _pair(bench)
        peer, reader = await bench.peer(master), await bench.peer(slave)
        await peer.ask(send_command())
        await until(lambda: slave.parts.store.reput_offset == slave.parts.store.end > 0)
        slave.tables.topics.replace(master.tables.topics.table())
        waiting = reader.send(pull_command(offset=1, flags=6, suspend_ms=60_000))
        await until(lambda: slave._pulls.held_count == 1)
        await peer.ask(send_command())
        assert (await reader.answer(waiting)).fields["nextBeginOffset"] == "2"


async def test_with_sync_flush_a_slave_acknowledges_what_it_synced(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await _pair(bench, sync_flush=True)
        peer = await bench.peer(master)
        for _ in range(3):
            assert (await peer.ask(send_command())).code == 0
            assert slave.parts.store.flushed == master.parts.store.end


@pytest.mark.rule("H9", "H10")
async def test_h10_a_status_of_slaves_is_told_when_the_disk_has_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With SYNC_FLUSH "at once" means that no slave is waited for: the disk always is."""
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=Role.SYNC_MASTER, store=replace(SMALL, sync_flush=True))
        broker = await bench.broker(settings)
        peer, store, syncing = await bench.peer(broker), broker.parts.store, threading.Event()
        flush = store.flush
        monkeypatch.setattr(store, "flush", lambda: (syncing.wait(10), flush())[1])
        opaque = peer.send(send_command())
        await peer.ask(pull_command())  # the send was handled before it
        assert store.end > store.flushed
        assert [command.code for command in peer.order] == [19]
        syncing.set()
        assert (await peer.answer(opaque)).code == 11
        assert store.flushed == store.end


async def _pair(bench: Bench, *, sync_flush: bool = False) -> tuple[Broker, Broker]:
    store = replace(SMALL, sync_flush=sync_flush)
    master = await bench.broker(bench.settings("master", role=Role.SYNC_MASTER, store=store))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, store=store))
    assert master.ha_address is not None
    slave.log.follow(f"127.0.0.1:{master.ha_address[1]}")
    await until(lambda: master.log.ha_status().in_sync_slaves == 1)
    return master, slave


async def test_dispatch_lingers_only_while_nobody_waits_or_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LINGER_S", 600.0)
    async with benched(tmp_path) as bench:
        seldom = replace(SMALL, flush_interval_ms=600_000)  # a flush would dispatch too
        broker = await bench.broker(bench.settings(store=seldom))
        peer, waiting, store = await bench.peer(broker), await bench.peer(broker), broker.parts.store
        for _ in range(3):
            assert (await peer.ask(send_command())).code == 0
        assert store.reput_offset < store.end
        assert (await peer.ask(pull_command())).fields["nextBeginOffset"] == "3"
        held = waiting.send(pull_command(offset=3, flags=PullFlag.SUBSCRIPTION | PullFlag.SUSPEND, suspend_ms=60_000))
        await until(lambda: broker._pulls.held_count == 1)
        assert (await peer.ask(send_command())).code == 0
        assert (await waiting.answer(held)).fields["nextBeginOffset"] == "4"


async def test_dispatch_does_not_linger_where_there_is_much_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LINGER_S", 600.0)
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(store=replace(SMALL, flush_interval_ms=600_000)))
        peer, store = await bench.peer(broker), broker.parts.store
        for _ in range(2):
            assert (await peer.ask(send_command())).code == 0
            assert store.reput_offset < store.end
            monkeypatch.setattr(log_module, "LINGER_BYTES", 2 * (store.end - store.reput_offset))
            assert (await peer.ask(send_command())).code == 0
            await until(lambda: store.reput_offset == store.end)


async def test_a_broker_that_stops_does_not_linger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store is closed when the time would come."""
    monkeypatch.setattr(log_module, "LINGER_S", 0.05)
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(store=replace(SMALL, flush_interval_ms=600_000)))
        peer, dispatches = await bench.peer(broker), list[int]()
        assert (await peer.ask(send_command())).code == 0
        await broker.stop()
        monkeypatch.setattr(broker.parts.store, "reput", lambda *_: dispatches.append(1))
        await asyncio.sleep(0.1)
        assert not dispatches and not broker.failure.done()


@pytest.mark.parametrize(
    ("role", "order"), [(Role.ASYNC_MASTER, ["response", "feed"]), (Role.SYNC_MASTER, ["feed", "response"])]
)
async def test_slaves_are_fed_before_responses_leave_where_these_wait_for_them_else_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role, order: list[str]
) -> None:
    async with benched(tmp_path) as bench:
        broker, events = await bench.broker(bench.settings(role=role)), list[str]()
        peer, flush = await bench.peer(broker), Link.flush
        await peer.ask(send_command())  # the topic is made, and saved

        def flushed(link: Link) -> None:
            if link.unsent_responses():
                events.append("response")
            flush(link)

        monkeypatch.setattr(Link, "flush", flushed)
        monkeypatch.setattr(HaMaster, "appended", lambda master, end: events.append("feed"))
        assert (await peer.ask(send_command())).code in (0, 11)
        await until(lambda: len(events) >= 2)
        assert events == order


async def test_a_disk_that_fails_under_dispatch_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        with monkeypatch.context() as broken:
            broken.setattr(ConsumeQueue, "write", _broken)
            assert (await peer.ask(send_command())).code == 0
            assert "input/output" in str(await broker.failure)


def _broken(*_: object, **__: object) -> None:
    raise StorageError("input/output error")


@pytest.mark.rule("H11")
async def test_a_flush_answers_the_sends_that_it_synced_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings(store=replace(SMALL, sync_flush=True)))
        early, late, store = await bench.peer(broker), await bench.peer(broker), broker.parts.store
        flush, flushes, go_on = store.flush, list[int](), threading.Event()

        def slow() -> int:
            flushes.append(flush())
            if len(flushes) > 1:  # while the second one runs, the first is heard of
                go_on.wait(10)
            else:
                asyncio.run_coroutine_threadsafe(appended(), loop).result(10)
            return flushes[-1]

        async def appended() -> None:
            late.send(send_command())
            await until(lambda: store.end > flushes[0])

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(store, "flush", slow)
        assert (await early.ask(send_command())).code == 0
        assert store.end > flushes[0]
        await late.ask(pull_command(offset=9))
        assert [command.opaque for command in late.order] == [2], "the send has no answer before its own sync"
        go_on.set()
        assert (await late.answer(1)).code == 0


def failing(broken: list[str]) -> SpyDisk:
    """A disk on which writes to files whose paths have a word of ``broken`` fail."""

    def fail(action: str, path: str) -> None:
        if action == "write" and any(word in path for word in broken):
            raise StorageError("cannot write: Input/output error", path=path)

    return SpyDisk(fail)


async def test_a_log_write_that_fails_ends_the_broker(tmp_path: Path) -> None:
    """It was registered, refused every send and never ended."""
    broken: list[str] = []
    async with benched(tmp_path) as bench:
        seldom = replace(SMALL, flush_interval_ms=600_000)  # a flush would find it too
        broker = await bench.broker(bench.settings(store=seldom), failing(broken))
        peer = await bench.peer(broker)
        assert (await peer.ask(send_command())).code == 0
        broken.append("commitlog")
        assert (await peer.ask(send_command())).code == 1
        assert isinstance(await asyncio.wait_for(broker.failure, 10), StorageError)


@pytest.mark.rule("H8")
async def test_h8_a_slaves_log_write_that_fails_ends_the_slave(tmp_path: Path) -> None:
    broken: list[str] = []
    async with benched(tmp_path) as bench:
        master = await bench.broker(bench.settings("master"))
        seldom = replace(SMALL, flush_interval_ms=600_000)
        slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, store=seldom), failing(broken))
        assert master.ha_address is not None
        slave.log.follow(f"127.0.0.1:{master.ha_address[1]}")
        await until(lambda: master.log.ha_status().in_sync_slaves == 1)
        broken.append("commitlog")
        await (await bench.peer(master)).ask(send_command())
        assert isinstance(await asyncio.wait_for(slave.failure, 10), StorageError)


@pytest.mark.parametrize(
    ("module", "method"), [(Saver, "_run"), (MetadataSync, "_next_round"), (Registrar, "_register"), (HaSlave, "_stay")]
)
async def test_a_background_task_that_dies_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: type, method: str
) -> None:
    async def die(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(saver_module, "PERIOD_S", 0.0)
    async with benched(tmp_path) as bench:
        with monkeypatch.context() as dying:
            dying.setattr(module, method, die)
            slave = bench.settings(role=Role.SLAVE, broker_id=1, name_servers=("127.0.0.1:1",))
            broker = await bench.broker(slave)
            broker.log.follow("127.0.0.1:1")
            assert "a bug" in str(await asyncio.wait_for(broker.failure, 10))


async def test_a_stop_in_the_moment_of_a_change_comes_to_its_end(tmp_path: Path) -> None:
    """A task that was woken and cancelled in one turn went on for ever, and so did the stop that waited for it."""
    async with benched(tmp_path) as bench:
        slave = bench.settings(role=Role.SLAVE, broker_id=1, name_servers=("127.0.0.1:1",))
        broker = await bench.broker(slave)
        assert broker._registrar is not None
        registrar = broker._registrar
        await until(lambda: bool(registrar.registered))
        for _ in range(3):
            await asyncio.sleep(0)
        broker._topics_changed()
        broker.sync.followed()
        async with asyncio.timeout(10):
            await broker.stop()
