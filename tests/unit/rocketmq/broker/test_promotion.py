"""A slave's folder becomes a master's, step by step as ``docs/ha.md`` says, with two whole brokers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from support.brokers import SMALL, Bench, Peer, benched, bodies, pull_command, send_command
from support.waiting import until
from tallystick.errors import UsageError
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.broker.role import Role

MIB = 1024 * 1024
STORE = replace(SMALL, commit_log_file_bytes=MIB)
OLD, NEW = "Old", "New"


async def send(peer: Peer, topic: str, count: int, body: bytes = b"x") -> list[int]:
    asked = [peer.send(send_command(topic, body)) for _ in range(count)]
    answers = [await peer.answer(opaque) for opaque in asked]
    assert {answer.code for answer in answers} == {0}
    return [int(answer.fields["queueOffset"]) for answer in answers]


async def pair(bench: Bench) -> tuple[Broker, Broker]:
    """A master with three files of log, and a slave that came late: it has the last one."""
    master = await bench.broker(bench.settings("master", store=STORE))
    peer = await bench.peer(master)
    await send(peer, OLD, 40, bytes(30_000))
    await send(peer, NEW, 30, bytes(30_000))
    slave = await bench.broker(bench.settings("slave", role=Role.SLAVE, broker_id=1, store=STORE))
    slave.log.follow("{}:{}".format(*master.ha_address or ()))
    await until(lambda: slave.parts.store.end == master.parts.store.end)
    assert slave.parts.store.first > 0
    assert OLD not in slave.parts.store.queues()
    return master, slave


async def test_queue_offsets_and_messages_go_on_where_the_master_was_lost(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        master, slave = await pair(bench)
        assert slave.log.ha_status().link.ends_known is False
        await slave.sync.sync("{}:{}".format(*master.address))
        assert not slave.sync.status.failures
        assert slave.log.ha_status().link.ends_known is True
        await slave.stop()
        await master.stop()
        shutil.copytree(tmp_path / "slave", tmp_path / "promoted")  # step 3: on a copy of the slave's folder
        promoted = await bench.broker(bench.settings("promoted", store=STORE))
        assert {OLD, NEW} <= set(promoted.tables.topics.all)
        peer = await bench.peer(promoted)
        assert (await send(peer, OLD, 1, b"after"), await send(peer, NEW, 1, b"after")) == ([40], [30])
        assert bodies(await peer.ask(pull_command(OLD, offset=40))) == [b"after"]
        assert bodies(await peer.ask(pull_command(NEW, offset=30))) == [b"after"]
        assert bodies(await peer.ask(pull_command(NEW, offset=29))) == [bytes(30_000), b"after"]


async def test_a_copy_that_was_never_told_the_ends_is_no_master(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        _, slave = await pair(bench)
        await slave.stop()
        with pytest.raises(UsageError, match="never told where the master's queues end"):
            await bench.broker(bench.settings("slave", store=STORE))
        accepted = replace(STORE, ends_may_be_unknown=True)
        promoted = await bench.broker(bench.settings("slave", store=accepted))
        assert await send(await bench.peer(promoted), OLD, 1) == [0]
