"""Running brokers change their roles: the same processors, and nothing that was promised is lost or given out twice."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.brokers import SMALL, TOPIC, Bench, benched, bodies, fill, pull_command, send_command
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.machine import this_machine

REFUSED = 2  # SYSTEM_BUSY: what an original slave says to a send


async def pair(bench: Bench, role: Role = Role.SYNC_MASTER, **settings: Any) -> tuple[Broker, Broker]:
    master = await bench.broker(bench.settings("master", role=role, **settings))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, **settings))
    follow(slave, master)
    await until(lambda: slave.log.follow_status().link > 0)
    return master, slave


def follow(slave: Broker, master: Broker) -> None:
    """As a name server tells it."""
    slave.log.follow("{}:{}".format(*master.ha_address or ()))
    slave.sync.master = "{}:{}".format(*master.address)


def processors(broker: Broker) -> list[object]:
    return [broker.parts, broker.log, broker.sync, broker.tables, broker.parts.store, broker._sends, broker._pulls]


@pytest.mark.rule("H8", "H12")
async def test_a_slave_becomes_a_master_and_back_in_the_same_processors(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        before = processors(slave)
        await fill(await bench.peer(master), 5)
        await until(lambda: TOPIC in slave.tables.topics.all and slave.parts.store.reput_offset == master.log.store.end)
        peer = await bench.peer(slave)
        assert (await peer.ask(send_command())).code == REFUSED
        assert slave.ha_address is None

        await master.stop()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        answer = await peer.ask(send_command(body=b"new"))
        assert (answer.code, answer.fields["queueOffset"]) == (0, "5")
        assert bodies(await peer.ask(pull_command())) == [b"0", b"1", b"2", b"3", b"4", b"new"]
        assert slave.log.ha_status().master and slave.sync.tasks == []

        third = await bench.broker(bench.settings("third", role=Role.SLAVE, broker_id=2))
        follow(third, slave)
        await until(lambda: third.parts.store.end == slave.parts.store.end)

        await slave.take_role(Role.SLAVE, 1)
        assert (await peer.ask(send_command())).code == REFUSED
        await until(lambda: third.log.follow_status().link == 0)
        await third.take_role(Role.ASYNC_MASTER, 0)
        follow(slave, third)
        await fill(await bench.peer(third), 1)
        await until(lambda: slave.parts.store.queue_range(TOPIC, 0)[1] == 7)
        assert processors(slave) == before
        assert bodies(await peer.ask(pull_command(offset=6))) == [b"0"]


@pytest.mark.rule("H7", "H12")
async def test_what_one_master_deleted_behind_a_slaves_log_takes_nothing_that_the_next_one_stores(
    tmp_path: Path,
) -> None:
    async with benched(tmp_path) as bench:
        first, second = await pair(bench, role=Role.ASYNC_MASTER)
        third = await bench.broker(bench.settings("third", role=Role.SLAVE, broker_id=2))
        follow(third, first)
        peer = await bench.peer(first)
        await fill(peer, 5)
        await until(lambda: all(slave.parts.store.end == first.parts.store.end for slave in (second, third)))
        assert first.log._master is not None
        for link in first.log._master._links:
            link._paused = True  # nothing more of the log leaves it
        await fill(peer, 50, topic="Other")
        assert (await peer.code(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC})).code == 0
        for slave in (second, third):
            assert slave.sync.master is not None
            await slave.sync.sync(slave.sync.master)
            assert slave.parts.store.replicated.deletions[TOPIC] > slave.parts.store.end

        await first.stop()
        await second.take_role(Role.SYNC_MASTER, 0)
        follow(third, second)
        await until(lambda: second.log.ha_status().in_sync_slaves == 1)
        await fill(await bench.peer(second), 10)
        await until(lambda: third.parts.store.reput_offset == second.parts.store.end)
        assert third.sync.master is not None
        await third.sync.sync(third.sync.master)
        await second.stop()
        await third.take_role(Role.ASYNC_MASTER, 0)
        peer = await bench.peer(third)
        assert len(bodies(await peer.ask(pull_command(count=32)))) == 10
        assert (await peer.ask(send_command())).fields["queueOffset"] == "10"


@pytest.mark.rule("H12", "H13")
async def test_a_slave_that_was_a_master_sends_no_group_over_messages_that_its_master_has(tmp_path: Path) -> None:
    commit = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "commitOffset": "10"}
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench, role=Role.ASYNC_MASTER)
        peer = await bench.peer(master)
        await fill(peer, 5)
        await until(lambda: slave.parts.store.queue_range(TOPIC, 0) == (0, 5))
        assert master.log._master is not None
        for link in master.log._master._links:
            link._paused = True  # nothing more of the log leaves it
        await fill(peer, 5)
        await until(lambda: master.parts.store.queue_range(TOPIC, 0) == (0, 10))
        assert slave.sync.master is not None
        await slave.sync.sync(slave.sync.master)

        await master.stop()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert slave.parts.store.queue_range(TOPIC, 0) == (0, 10)
        await slave.take_role(Role.SLAVE, 1)
        peer = await bench.peer(slave)
        answer = await peer.ask(pull_command(offset=5, suspend_ms=0))
        assert (answer.remark, answer.fields["nextBeginOffset"]) == ("OFFSET_OVERFLOW_ONE", "5")
        assert (await peer.code(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code != 0


async def test_until_its_log_is_a_masters_it_takes_nothing_and_serves_consumers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await fill(await bench.peer(master), 2)
        store, go_on = slave.parts.store, threading.Event()
        await until(lambda: TOPIC in slave.tables.topics.all and store.reput_offset == master.parts.store.end)
        promote = store.promote
        monkeypatch.setattr(store, "promote", lambda: (go_on.wait(10), promote())[1])
        peer, taking = await bench.peer(slave), asyncio.create_task(slave.take_role(Role.ASYNC_MASTER, 0))
        await until(lambda: slave.log._slave is None)
        assert not slave.log.ha_status().master
        assert (await peer.ask(send_command())).code == REFUSED
        assert bodies(await peer.ask(pull_command())) == [b"0", b"1"]
        go_on.set()
        await taking
        assert (await peer.ask(send_command())).fields["queueOffset"] == "2"


@pytest.mark.rule("H9")
@pytest.mark.parametrize(("sync_flush", "code"), [(False, 12), (True, 12)])
async def test_h9_who_waits_for_a_slave_when_its_master_is_none_any_more_hears_that_nobody_knows(
    tmp_path: Path, sync_flush: bool, code: int
) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench, store=replace(SMALL, sync_flush=sync_flush))
        peer = await bench.peer(master)
        await fill(peer, 1)
        slave.parts.store.append_raw = _never  # type: ignore[method-assign]
        opaques = [peer.send(send_command(body=b"%d" % number)) for number in range(3)]
        await until(lambda: master.parts.store.queue_range(TOPIC, 0)[1] == 4)
        await until(lambda: master.parts.store.flushed == master.parts.store.end or not sync_flush)
        await master.take_role(Role.SLAVE, 2)
        assert [(await peer.answer(opaque)).code for opaque in opaques] == [code] * 3
        assert master._sends._waiting_responses == {}


def _never(offset: int, data: object) -> int:
    return 0


async def test_who_waits_for_the_disk_is_not_told_yes_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with benched(tmp_path) as bench:
        master = await bench.broker(bench.settings(store=replace(SMALL, sync_flush=True)))
        peer, store, synced = await bench.peer(master), master.parts.store, asyncio.Event()
        monkeypatch.setattr(master.log._flusher, "request", synced.set)
        opaque = peer.send(send_command())
        await synced.wait()
        await master.take_role(Role.SLAVE, 1)
        assert (await peer.answer(opaque)).code == 10
        await until(lambda: store.reput_offset == store.end)


async def test_a_part_of_a_record_goes_and_what_comes_waits_for_the_disk(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        sync = replace(SMALL, sync_flush=True)
        master, slave = await pair(bench, store=sync)
        await fill(await bench.peer(master), 3)
        store, end = slave.parts.store, master.parts.store.end
        await master.stop()
        await until(lambda: slave.log.follow_status().link == 0)
        store.append_raw(end, master_record()[:50])
        store.flush()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert store.end == store.flushed == end
        peer = await bench.peer(slave)
        assert (await peer.ask(send_command(body=b"x" * 10))).code == 0
        assert store.flushed == store.end > end
        await slave.stop()
        again = await bench.broker(bench.settings("slave", store=sync))
        assert len(bodies(await (await bench.peer(again)).ask(pull_command()))) == 4


def master_record() -> bytes:
    """As long as the first bytes say, but there is no more of it."""
    return (200).to_bytes(4, "big") + bytes.fromhex("daa320a7") + bytes(192)


async def test_a_slave_that_may_be_no_master_goes_on_as_one(tmp_path: Path) -> None:
    small = replace(SMALL, commit_log_file_bytes=64 * 1024)
    async with benched(tmp_path) as bench:
        master = await bench.broker(bench.settings("master", store=small))
        peer = await bench.peer(master)
        for number in range(5):
            assert (await peer.ask(send_command(body=bytes(30_000), topic=f"T{number}"))).code == 0
        slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, store=small))
        slave.log.follow("{}:{}".format(*master.ha_address or ()))
        await until(lambda: slave.parts.store.end == master.parts.store.end)
        assert slave.parts.store.first > 0
        with pytest.raises(UsageError, match="never told where the master's queues end"):
            await slave.take_role(Role.ASYNC_MASTER, 0)
        assert slave.standing.is_slave and len(slave.sync.tasks) == 1
        assert (await peer.ask(send_command(topic="T0"))).code == 0
        await until(lambda: slave.parts.store.end == master.parts.store.end)


async def test_a_slave_whose_port_for_slaves_is_taken_goes_on_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote, promotions = MessageStore.promote, list[MessageStore]()

    def promoted(store: MessageStore) -> list[Arrival]:
        promotions.append(store)
        return promote(store)

    monkeypatch.setattr(MessageStore, "promote", promoted)
    async with benched(tmp_path) as bench:
        master, other = await pair(bench)
        assert master.ha_address is not None
        taken = bench.settings("taken", role=Role.SLAVE, broker_id=2, ha_port=master.ha_address[1])
        slave = await bench.broker(taken)
        follow(slave, master)
        await until(lambda: slave.log.follow_status().link > 0)
        with pytest.raises(UsageError, match="cannot listen for slaves"):
            await slave.take_role(Role.ASYNC_MASTER, 0)
        assert not promotions, "what its store lacks of its master's log would be forgotten"
        await fill(await bench.peer(master), 2)
        await until(lambda: slave.parts.store.end == other.parts.store.end > 0)
        assert slave.parts.store.slave and slave.standing.is_slave and len(slave.sync.tasks) == 1
        await until(lambda: TOPIC in slave.tables.topics.all)
        await master.stop()
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert (await (await bench.peer(slave)).ask(send_command())).fields["queueOffset"] == "2"


@pytest.mark.rule("H13")
async def test_h13_commits_at_a_slave_are_its_own_no_more_and_locks_begin_anew(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await fill(await bench.peer(master), 3)
        await until(lambda: TOPIC in slave.tables.topics.all and slave.parts.store.reput_offset == master.log.store.end)
        await master.stop()
        commit = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "commitOffset": "2"}
        peer = await bench.peer(slave)
        assert (await peer.code(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        assert slave.tables.offsets.to_save().own is not None
        await slave.take_role(Role.ASYNC_MASTER, 0)
        assert slave.tables.offsets.get(TOPIC, "G", 0) == 2
        assert slave.tables.offsets.to_save().own is None
        locks, clock = slave.parts.locks, slave._outside.clock
        assert locks is slave._lock_file.locks
        assert locks._quiet_until > clock.now() + 50, "nobody knows who had locks at the old master"


async def test_it_registers_as_what_it_is(tmp_path: Path) -> None:
    server = NameServer(NameServerSettings(port=0, kv_config_path=str(tmp_path / "kv.json")), this_machine())
    host, port = await server.start()
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=Role.SLAVE, broker_id=3, name_servers=(f"{host}:{port}",))
        broker = await bench.broker(settings)
        for role, broker_id in ((Role.SLAVE, 3), (Role.ASYNC_MASTER, 0), (Role.SLAVE, 1)):
            if broker.standing.role is not role:
                await broker.take_role(role, broker_id)
            address = f"127.0.0.1:{broker.address[1]}"
            await until(lambda known=broker_id, at=address: server.routes.sets.members("b0") == {known: at})  # type: ignore[misc]
    await server.close()


@pytest.mark.rule("H9")
async def test_a_master_becomes_one_of_the_other_kind_and_keeps_its_slaves(tmp_path: Path) -> None:
    """It opened a second port for slaves: those at the first one got nothing more, and sends had no slave."""
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench, Role.ASYNC_MASTER)
        before, peer = (processors(master), master.ha_address), await bench.peer(master)
        await fill(peer, 2)
        await until(lambda: slave.parts.store.end == master.parts.store.end)
        await master.take_role(Role.SYNC_MASTER, 0)
        assert (processors(master), master.ha_address) == before and master.log.waits
        assert (await peer.ask(send_command())).code == 0
        assert slave.parts.store.end == master.parts.store.end, "the response waited for the slave"
        await master.take_role(Role.ASYNC_MASTER, 0)
        assert (master.standing.role, master.log.waits) == (Role.ASYNC_MASTER, False)
        await fill(peer, 1)
        await until(lambda: slave.parts.store.end == master.parts.store.end)


async def test_a_running_slave_keeps_its_id(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await slave.take_role(Role.SLAVE, 1)
        with pytest.raises(UsageError, match="another brokerId when it is started again"):
            await slave.take_role(Role.SLAVE, 2)
        assert slave.standing.broker_id == 1
        await fill(await bench.peer(master), 2)
        await until(lambda: slave.parts.store.end == master.parts.store.end)


@pytest.mark.parametrize(("role", "broker_id"), [(Role.SLAVE, 0), (Role.SYNC_MASTER, 1)])
async def test_an_id_that_does_not_fit_the_role_is_refused(tmp_path: Path, role: Role, broker_id: int) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        with pytest.raises(UsageError, match="brokerId is 0 for a master"):
            await broker.take_role(role, broker_id)
        assert (await (await bench.peer(broker)).ask(send_command())).code == 0
