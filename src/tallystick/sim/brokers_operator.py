"""What an operator does to simulated brokers: deletes topics and sets groups back, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from tallystick.errors import Unavailable
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.headers import TopicHeader
from tallystick.rocketmq.wire.operator_headers import ResetOffsetHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.sim.brokers_hosts import BrokerClientHost, BrokersWorld
from tallystick.sim.brokers_judge import BrokersJudge

T = TypeVar("T")

WITHIN_S = 2.0
AGAIN_S = 0.5


class SimOperator:
    """On a host of its own; asks the master at ``address``."""

    def __init__(self, world: BrokersWorld, host: BrokerClientHost, judge: BrokersJudge, address: str) -> None:
        self._world, self._host, self._judge, self._address = world, host, judge, address

    async def delete(self, topic: str) -> None:
        """Ask once to delete it; without a response nobody knows."""
        self._judge.deleting(topic)
        response = await self.run(lambda client: self._ask(client, _deletion(topic)))
        if response is not None and response.code == ResponseCode.SUCCESS:
            self._judge.expectation.deletion_told(topic)

    async def set_back(self, group: str, topics: tuple[str, ...]) -> None:
        """Set a group without members to the first message of each queue, and ask again until it is done."""
        for topic in topics:
            await self.run(partial(self._set_back, group, topic))

    async def _set_back(self, group: str, topic: str, client: RemotingClient) -> None:
        header = ResetOffsetHeader(topic=topic, group=group, timestamp=0)
        while True:
            response = await self._ask(client, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.to_fields()))
            if response is not None and response.code == ResponseCode.SUCCESS:
                self._judge.expectation.was_set_back(group, topic)
                return
            if response is not None and response.code in _UNKNOWN:  # there is nothing to set
                return
            await asyncio.sleep(AGAIN_S)

    async def run(self, work: Callable[[RemotingClient], Awaitable[T]]) -> T:
        """Work with a client that is closed in the end."""

        async def run() -> T:
            client = RemotingClient(self._host.outside(), RemotingSettings())
            try:
                return await work(client)
            finally:
                await client.close()

        return await self._host.process.start(run())

    async def _ask(self, client: RemotingClient, command: Command) -> Command | None:
        try:
            return await client.ask(self._address, command, WITHIN_S)
        except Unavailable:
            return None


_UNKNOWN = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


def _deletion(topic: str) -> Command:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic).to_fields())
