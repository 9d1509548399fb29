"""A broker with all the sinks that it may have is killed and started again: it has them all, and answers as before.

The process is a real one, ``tally broker run``, killed by SIGKILL with most of the table behind its last checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from support.broker_peers import Broker
from support.brokers import TOPIC, Peer
from support.sinks import sink_command
from tallystick.rocketmq.wire.headers import SinkStateHeader, SinkStateResponse
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode

APPLICATIONS, PARTITIONS = 8, 50
ROOM = APPLICATIONS * PARTITIONS
MESSAGES = 2  # of a partition
AT_ONCE = 100  # requests


def identities_of(application: int, partition: int, *, batch: int = 0) -> list[SinkIdentity]:
    return [
        SinkIdentity(f"app{application}", "q", batch, PARTITIONS, partition, number, 17 * number + partition, "b0")
        for number in range(MESSAGES)
    ]


def all_commands() -> list[Command]:
    return [
        sink_command(identities_of(application, partition), queue_id=partition % 4)
        for application in range(APPLICATIONS)
        for partition in range(PARTITIONS)
    ]


@contextlib.asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", broker.ports.broker))
    try:
        yield peer
    finally:
        peer.writer.close()


async def answers(peer: Peer, commands: list[Command]) -> list[Command]:
    responses = list[Command]()
    for first in range(0, len(commands), AT_ONCE):
        numbers = [peer.send(command) for command in commands[first : first + AT_ONCE]]
        responses += [await peer.answer(number) for number in numbers]
    return responses


async def is_full(peer: Peer) -> None:
    """Nothing of another application is taken, and an application's next batch has the places of its last one."""
    [stranger] = await answers(peer, [sink_command([SinkIdentity("stranger", "q", 0, 1, 0, 0, 0, "b0")])])
    assert stranger.code not in (ResponseCode.SUCCESS, ResponseCode.SINK_GAP)
    assert stranger.remark is not None and "maxSinkPartitions" in stranger.remark


async def stored_count(broker: Broker) -> int:
    return sum([await broker.queue_end(TOPIC, queue) for queue in range(4)])


async def test_a_full_table_survives_a_kill(tmp_path: Path) -> None:
    broker = Broker("ours", tmp_path, None, "", {"maxSinkPartitions": ROOM})
    try:
        await broker.start()
        async with connected(broker) as peer:
            assert {answer.code for answer in await answers(peer, all_commands())} == {ResponseCode.SUCCESS}
            await is_full(peer)
        broker.kill()
        await broker.start()
        await broker.serves(TOPIC, ROOM * MESSAGES)
        async with connected(broker) as peer:
            for application, partition in ((0, 0), (APPLICATIONS - 1, PARTITIONS - 1)):
                header = SinkStateHeader(topic=TOPIC, application=f"app{application}", partition=partition)
                response = await peer.code(RequestCode.GET_SINK_STATE, header.to_fields())
                assert SinkStateResponse.of(response).sequence == MESSAGES - 1
            repeated = await answers(peer, all_commands())
            assert {answer.code for answer in repeated} == {ResponseCode.SUCCESS}
            await is_full(peer)
            assert await stored_count(broker) == ROOM * MESSAGES, "what it had it stored again"
            following = sink_command(identities_of(3, 0, batch=1))
            assert [answer.code for answer in await answers(peer, [following])] == [ResponseCode.SUCCESS]
            await broker.serves(TOPIC, (ROOM + 1) * MESSAGES)
    finally:
        broker.kill()
