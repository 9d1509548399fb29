"""Name servers and brokers as an operator asks them: which processes there are, and one request to any of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tallystick.errors import BrokerUnavailable, NoSuchTopic, Unavailable
from tallystick.rocketmq.client.name_servers import NameServers, addresses_of
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.security import open_client
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import ClusterInfo
from tallystick.rocketmq.wire.headers import Header
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, RequestCode
from tallystick.runtime.machine import this_machine

RESPONSE_S = 3.0


@dataclass(frozen=True)
class BrokerProcess:
    """One broker process as the name server knows it: ``broker`` is the name that a master shares with its slaves."""

    cluster: str
    broker: str
    broker_id: int
    address: str

    @property
    def id(self) -> str:
        return self.broker if self.is_master else f"{self.broker}-s{self.broker_id}"

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Operator:
    """Made by ``operator``."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str]) -> None:
        """``addresses``: of name servers."""
        self._remoting, self._addresses = remoting, addresses
        self._name_servers = NameServers(remoting, addresses, RESPONSE_S)
        self._silent: set[str] = set()

    async def ask_name_server(self, code: RequestCode, header: Header | None = None) -> Command:
        """Returns the response, which is a success. Raises BrokerError, NoSuchTopic, Unavailable."""
        return require_success(await self._name_servers.ask(code, _fields(header)), request=code.name)

    async def ask_each_name_server(self, code: RequestCode, header: Header | None = None) -> None:
        """Returns the responses of all of them, each a success. Raises as ``ask_name_server``."""
        await asyncio.gather(*(self.ask(address, code, header) for address in self._addresses))

    async def ask(self, address: str, code: RequestCode, header: Header | None = None) -> Command:
        """Returns the response of this broker, which is a success. Raises as ``ask_name_server``."""
        response = await self._remoting.ask(address, request(code, _fields(header)), RESPONSE_S)
        return require_success(response, request=code.name, address=address)

    async def ask_any(self, addresses: Sequence[str], code: RequestCode, header: Header | None = None) -> Command:
        """Returns the response of the first of a broker set's processes that sends one, the master before its slaves.

        Only for what changes nothing. One that was silent is asked last from then on. Raises as the other, and
        Unavailable when none answers.
        """
        failure: Unavailable | None = None
        for address in sorted(addresses, key=self._silent.__contains__):
            try:
                return await self.ask(address, code, header)
            except Unavailable as error:
                self._silent.add(address)
                failure = failure or error
        assert failure is not None, "a set has a process"
        raise failure


def _fields(header: Header | None) -> dict[str, str]:
    return header.to_fields() if header is not None else {}


@contextlib.asynccontextmanager
async def operator(name_servers: str) -> AsyncIterator[Operator]:
    """Connections are made when they are needed, and closed at the end. Raises UsageError for what is no address."""
    addresses = addresses_of(name_servers)
    remoting = open_client(this_machine(), None)
    try:
        yield Operator(remoting, addresses)
    finally:
        await remoting.close()


@contextlib.asynccontextmanager
async def telling_no_brokers(name_servers: str) -> AsyncIterator[None]:
    """Around a search for a topic: while no broker is registered, nobody knows which topics there are.

    Raises BrokerUnavailable then, in place of NoSuchTopic.
    """
    try:
        yield
    except NoSuchTopic as error:
        async with operator(name_servers) as asking:
            processes = await list_processes(asking)
        if processes:
            raise
        raise BrokerUnavailable(no_brokers(name_servers)) from error


def no_brokers(name_servers: str) -> str:
    """What there is to say when no broker is registered."""
    return f"no broker is registered at {name_servers}: start one"


async def list_processes(operator: Operator) -> list[BrokerProcess]:
    """All that are registered, masters before their slaves."""
    response = await operator.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
    info = dialect.read_as(bytes(response.body), ClusterInfo)
    processes = [
        BrokerProcess(route.cluster, name, broker_id, address)
        for name, route in info.brokers.items()
        for broker_id, address in route.addresses.items()
    ]
    return sorted(processes, key=lambda one: (one.cluster, one.broker, one.broker_id))
