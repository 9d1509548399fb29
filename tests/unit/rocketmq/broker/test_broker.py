"""Whole brokers in this process: a master alone, with a slave, stopped and started again."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.brokers import SMALL, TOPIC, Bench, benched, bodies, fill, pull_command, send_command
from support.waiting import until
from tallystick.codec.steps import finished
from tallystick.errors import StorageError, UsageError
from tallystick.rocketmq.broker import broker as broker_module
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.settings import FAST_PORT_BELOW
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.nameserver.server import NameServer
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.rocketmq.wire.values import PullFlag, RequestCode, TopicConfig
from tallystick.runtime.machine import this_machine

WAITING = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND


async def pair(bench: Bench, role: Role = Role.SYNC_MASTER, **ha: Any) -> tuple[Broker, Broker]:
    """A master and a slave that follows it."""
    master = await bench.broker(bench.settings("master", role=role, ha=HaSettings(**ha)))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1))
    assert master.ha_address is not None
    slave.log.follow(f"127.0.0.1:{master.ha_address[1]}")
    await until(lambda: master.log.ha_status().in_sync_slaves == 1)
    return master, slave


async def test_what_is_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        await fill(await bench.peer(broker), 5)
        started = time.monotonic()
        await broker.stop()
        again = await bench.broker()
        assert time.monotonic() - started < 5
        peer = await bench.peer(again)
        assert bodies(await peer.ask(pull_command())) == [b"0", b"1", b"2", b"3", b"4"]
        assert (await peer.ask(send_command())).fields["queueOffset"] == "5"
        assert [event for event in bench.told if event.kind == "store opened"][-1].fields["clean"] is True
        (stopped,) = [event for event in bench.told if event.kind == "broker stopped"]
        assert stopped.fields["end"] > 0


async def test_a_broker_says_what_keeps_it_from_starting(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        first = await bench.broker()
        with pytest.raises(UsageError, match="another process uses this folder"):
            await _in_another_process(first.settings.store_dir)
        with pytest.raises(UsageError, match="cannot listen for clients"):
            await bench.broker(bench.settings("other", port=first.address[1], ha_port=0))
        assert first.ha_address is not None
        with pytest.raises(UsageError, match="cannot listen for slaves"):
            await bench.broker(bench.settings("other", ha_port=first.ha_address[1]))
        assert not (tmp_path / "other").exists()  # nothing was made for a broker that cannot listen
        (await bench.broker(bench.settings("other"))).address  # noqa: B018


@pytest.mark.parametrize("below", [0, FAST_PORT_BELOW])
async def test_a_port_that_is_taken_while_the_store_opens_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: int
) -> None:
    build, rivals = Broker._build_requests, list[socket.socket]()

    def late(broker: Broker) -> None:
        build(broker)
        rival = socket.socket()
        rivals.append(rival)
        rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        host, port = broker.address
        rival.bind((host, port - below))
        rival.listen()

    monkeypatch.setattr(Broker, "_build_requests", late)
    async with benched(tmp_path) as bench:
        with pytest.raises(UsageError, match="cannot listen for clients"):
            await bench.broker()
    rivals[0].close()


async def _in_another_process(folder: str) -> None:
    """Locks of one process do not shut itself out: ask from another one."""
    script = (
        "import sys\nfrom tallystick.errors import UsageError\nfrom tallystick.runtime.folder_lock import ByteLock\n"
        "try:\n    ByteLock(sys.argv[1] + '/lock', b'lock')\nexcept UsageError as error:\n    print(error.message)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, folder, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    if said:
        raise UsageError(said.decode().strip())


@pytest.mark.parametrize(("perm", "shown"), [(2, 2), (4, 4), (6, 6)])
async def test_what_is_registered_is_what_the_whole_broker_allows(tmp_path: Path, perm: int, shown: int) -> None:
    outside = this_machine()
    server = NameServer(NameServerSettings(port=0), outside)
    host, port = await server.start()

    def route(topic: str) -> list[int]:
        found = finished(server.routes.route(topic))
        return [queue.perm for queue in found.queues] if found is not None else []

    async with benched(tmp_path) as bench:
        broker = await bench.broker(bench.settings("a", perm=perm, name_servers=(f"{host}:{port}",)))
        await until(lambda: route("OFFSET_MOVED_EVENT") == [shown])
        broker.tables.topics.put(TopicConfig("T2"))  # registered as it changes
        await until(lambda: route("T2") == [shown])
        made = broker.tables.topics.get("T2")
        assert made is not None and made.perm == 6  # what the broker keeps, and its slaves copy
    await server.close()


async def test_damaged_tables_are_named_and_not_replaced(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        config = tmp_path / "b0" / "config"
        config.mkdir(parents=True)
        for name in ("topics.json", "topics.json.bak"):
            (config / name).write_text("{")
        with pytest.raises(Exception, match=r"topics\.json"):
            await bench.broker()
        assert (config / "topics.json").read_text() == "{"


# Pulling


@pytest.mark.rule("H9")
async def test_h9_a_synchronous_send_waits_for_the_slave(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        peer = await bench.peer(master)
        await fill(peer, 20)
        assert slave.parts.store.end == master.parts.store.end


@pytest.mark.rule("H9")
async def test_h9_a_slave_that_is_too_slow_ends_the_wait_but_not_the_message(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench, slave_timeout_ms=50)
        await fill(peer := await bench.peer(master), 1)
        slave.parts.store.append_raw = _never  # type: ignore[method-assign]
        late = await peer.ask(send_command(body=b"late"))
        assert (late.code, late.fields["queueOffset"]) == (12, "1")
        assert bodies(await peer.ask(pull_command(offset=1))) == [b"late"]
        assert (await peer.ask(send_command(properties="WAIT\x01false\x02"))).code == 0


def _never(offset: int, data: object) -> int:
    raise StorageError("not now")


@pytest.mark.rule("H10")
async def test_h10_without_a_slave_a_synchronous_send_does_not_wait(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        peer = await bench.peer(await bench.broker(bench.settings(role=Role.SYNC_MASTER)))
        answer = await peer.ask(send_command())
        assert (answer.code, answer.fields["queueOffset"]) == (11, "0")
        assert (await peer.ask(send_command(properties="WAIT\x01false\x02"))).code == 0
        assert len(bodies(await peer.ask(pull_command()))) == 2


@pytest.mark.rule("H1")
async def test_h1_messages_and_tables_replicate_apart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        peer = await bench.peer(master)
        await fill(peer, 2)
        assert slave.parts.store.end == master.parts.store.end
        assert slave.tables.topics.get(TOPIC) is None, "the log came, the tables did not"
        await slave.sync.sync("{}:{}".format(*master.address))
        assert slave.tables.topics.get(TOPIC) == master.tables.topics.get(TOPIC)


@pytest.mark.rule("H12")
async def test_h12_a_master_with_an_empty_disk_wipes_no_tables_of_its_slave(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await fill(await bench.peer(master), 2)
        sync, events = slave.sync, bench.told
        assert sync is not None
        await sync.sync("{}:{}".format(*master.address))
        before = dict(slave.tables.topics.all)
        assert TOPIC in before
        await master.stop()
        empty = await bench.broker(bench.settings("empty", broker_id=0))
        slave.log.follow("{}:{}".format(*empty.ha_address or ()))
        await until(lambda: "the master lost its end" in slave.log.follow_status().why)
        for _ in range(2):
            await sync.sync("{}:{}".format(*empty.address))
        assert dict(slave.tables.topics.all) == before
        [event] = [event for event in events if event.kind == "metadata not copied"]
        assert "the master lost its end" in event.fields["reason"]
        status = dialect.read_as(
            bytes((await (await bench.peer(slave)).code(RequestCode.GET_BROKER_HA_STATUS)).body), HaStatus
        )
        assert "the master lost its end" in (status.link.tables_why or "")


@pytest.mark.rule("H3", "H13")
async def test_h13_the_slave_serves_when_the_master_is_dead_and_takes_no_message(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await fill(await bench.peer(master), 3)
        slave.tables.topics.replace(master.tables.topics.table())
        await master.stop()
        peer = await bench.peer(slave)
        assert bodies(await peer.ask(pull_command())) == [b"0", b"1", b"2"]
        beyond = await peer.ask(pull_command(offset=99))
        assert (beyond.code, beyond.fields["nextBeginOffset"]) == (20, "99")
        held = await peer.ask(pull_command(offset=3, flags=WAITING, suspend_ms=50))
        assert held.code == 19
        assert (await peer.ask(send_command())).code == 2
        assert (await peer.code(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})).fields == {"offset": "3"}


@pytest.mark.rule("H3", "H12", "H13")
async def test_h12_a_message_on_the_slave_brings_its_topic_and_a_restart_makes_good_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = partial(MetadataSync, first_s=600.0, period_s=600.0)
    monkeypatch.setattr(broker_module, "MetadataSync", seldom)
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        peer = await bench.peer(master)
        await fill(peer, 1)  # nobody has told the slave where its master answers: the topic waits for that
        slave.sync.master = "{}:{}".format(*master.address)
        await until(lambda: slave.tables.topics.get(TOPIC) is not None)
        await fill(peer, 1, topic="Later")
        await until(lambda: slave.tables.topics.get("Later") is not None)
        slave.tables.topics.delete("Later")
        await slave.stop()
        again = await bench.broker(slave.settings)
        assert again.tables.topics.get(TOPIC) is not None and again.tables.topics.get("Later") is None
        again.sync.master = "{}:{}".format(*master.address)
        again.log.follow("{}:{}".format(*master.ha_address or ()))
        await until(lambda: again.tables.topics.get("Later") is not None)
        assert again.tables.topics.all == master.tables.topics.all


@pytest.mark.rule("H13")
async def test_h13_a_master_that_comes_back_is_told_at_once_what_was_committed_on_its_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "MetadataSync", partial(MetadataSync, first_s=600.0, period_s=600.0))
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        assert master.ha_address is not None
        slave.sync.master = "{}:{}".format(*master.address)
        await fill(await bench.peer(master), 9)
        await until(lambda: slave.parts.store.end == master.parts.store.end and TOPIC in slave.tables.topics.all)
        await master.stop()
        commit = {"consumerGroup": "readers", "topic": TOPIC, "queueId": "0", "commitOffset": "7"}
        assert (await (await bench.peer(slave)).code(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        same_ports = replace(master.settings, port=master.address[1], ha_port=master.ha_address[1])
        again = await bench.broker(same_ports)
        await until(lambda: again.tables.offsets.get(TOPIC, "readers", 0) == 7, 10)


async def test_a_slave_that_serves_nobody(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=Role.SLAVE, broker_id=1, slave_read=False)
        peer = await bench.peer(await bench.broker(settings))
        assert (await peer.ask(pull_command())).code == 2


@pytest.mark.parametrize("role", [Role.ASYNC_MASTER, Role.SYNC_MASTER])
async def test_sync_flush_answers_what_is_on_the_disk(tmp_path: Path, role: Role) -> None:
    async with benched(tmp_path) as bench:
        settings = bench.settings(role=role, store=replace(SMALL, sync_flush=True))
        broker = await bench.broker(settings)
        peer = await bench.peer(broker)
        answer = await peer.ask(send_command())
        assert answer.code == (0 if role is Role.ASYNC_MASTER else 11)
        store = broker.parts.store
        await until(lambda: store.flushed == store.end == store.reput_offset)
        assert len(bodies(await peer.ask(pull_command()))) == 1


async def test_a_disk_that_fails_ends_the_writing_not_the_reading(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        peer = await bench.peer(broker)
        await fill(peer, 2)

        def fail() -> int:
            gone = StorageError("the disk is gone")
            broker.parts.store._log.failed = gone
            raise gone

        broker.parts.store.flush = fail  # type: ignore[method-assign]
        broker.log._flusher.request()
        error = await asyncio.wait_for(asyncio.shield(broker.failure), 10)
        assert "the disk is gone" in str(error)
        refused = await peer.ask(send_command())
        assert (refused.code, "the disk failed" in str(refused.remark)) == (14, True)
        assert len(bodies(await peer.ask(pull_command()))) == 2


# Around it


async def test_metrics_and_health(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, _ = await pair(bench)
        await fill(await bench.peer(master), 3)
        http = await bench.broker(bench.settings("http", http_enabled=True, http_port=0))
        peer = await bench.peer(http)
        await fill(peer, 2)
        await peer.ask(pull_command())
        page = await _get(http, "/metrics")
        for line in ("broker_messages_in_total 2.0", "broker_messages_out_total 2.0", "broker_writeable 1.0"):
            assert line in page
        assert '"role": "ASYNC_MASTER"' in await _get(http, "/health")
        slave = bench.settings("slave", role=Role.SLAVE, broker_id=1, http_enabled=True, http_port=0)
        reader = await bench.broker(slave)
        page = await _get(reader, "/metrics")
        assert "broker_writeable 0.0" in page and 'id="1",role="SLAVE"} 1.0' in page
        assert http.http_address is not None
        taken = bench.settings("taken", http_enabled=True, http_port=http.http_address[1])
        with pytest.raises(UsageError, match=r"cannot listen for HTTP: .*metricsPromExporterPort"):
            await bench.broker(taken)
        assert '"writeable": false' in await _get(reader, "/health")
        assert [lag.in_sync for lag in master.log.lags()] == [True]


async def _get(broker: Broker, path: str) -> str:
    assert broker.http_address is not None
    reader, writer = await asyncio.open_connection(*broker.http_address)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    page = (await reader.read()).decode()
    writer.close()
    return page


async def test_a_slave_does_not_count_what_it_copied_as_put(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        await fill(await bench.peer(master), 3)
        await until(lambda: slave.parts.store.reput_offset == master.parts.store.end)
        assert (master.parts.traffic.puts.total, slave.parts.traffic.puts.total) == (3, 0)
        assert list(slave.parts.traffic.puts_by_topic()) == []


async def test_ha_status_says_up_to_where_a_slave_was_sent(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, _ = await pair(bench)
        await fill(await bench.peer(master), 3)
        [slave] = master.log.ha_status().slaves
        assert slave.sent_offset == master.parts.store.end
