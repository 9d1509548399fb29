"""This client as a member of groups: heartbeats to all brokers, and their notice when a group's members change.

A producer sends heartbeats to masters only, a consumer to slaves too: these know a group's members when the master is
away. To a broker a member is a connection. When one was lost the next heartbeat is sent at once, not after half a
minute in which the group would share out the member's queues among the others. So is one to a broker that comes, or
comes back, into the routes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from itertools import compress

from tallystick.errors import RemoteProtocolError, TallyError, Unavailable
from tallystick.rocketmq.client.context import BrokerContext
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.client.topic import NumberedConnection
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.headers import ConsumerGroupHeader, UnregisterClientHeader
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import (
    MASTER_ID,
    ConsumerGroup,
    Heartbeat,
    ProducerGroup,
    RequestCode,
    ResponseCode,
)

FIRST_PAUSE_S = 0.1  # before a heartbeat that follows a lost connection; twice as long when that one fails too
MAX_PAUSE_S = 5.0


class Membership:
    """Producers and consumers enter and leave; see the module."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._producers: dict[str, None] = {}
        self._consumers: dict[str, tuple[ConsumerGroup, Callable[[], None]]] = {}
        self._beat_soon = asyncio.Event()  # a connection or a heartbeat was lost, or a broker is new
        self._recipients: set[NumberedConnection] = set()  # the connections over which a broker took the last heartbeat

    def add_producer(self, group: str) -> None:
        self._producers[group] = None

    def has_consumer(self, group: str) -> bool:
        return group in self._consumers

    async def enter(self, group: ConsumerGroup, on_changed: Callable[[], None]) -> None:
        """``on_changed`` is called when a broker says that the group's members changed."""
        self._consumers[group.name] = (group, on_changed)
        await self.beat()

    async def leave(self, group: str) -> None:
        if self._consumers.pop(group, None) is not None:
            await self._unregister(UnregisterClientHeader(client_id=self._context.client_id, consumer_group=group))

    async def leave_all(self) -> None:
        for group in tuple(self._consumers):
            await self.leave(group)
        for group in self._producers:
            await self._unregister(UnregisterClientHeader(client_id=self._context.client_id, producer_group=group))
        self._producers.clear()

    async def keep_beating(self) -> None:
        """Send heartbeats, for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._context.settings.heartbeat_s):
                    await self._beat_soon.wait()
                    await asyncio.sleep(pause_s)
            self._beat_soon.clear()
            all_responded = await self.beat()
            pause_s = FIRST_PAUSE_S if all_responded else min(2 * pause_s, MAX_PAUSE_S)

    def connection_lost(self, address: str) -> None:
        """The connection to an address ended."""
        if address in self._addresses(slaves=bool(self._consumers)):
            self._beat_soon.set()

    def route_changed(self) -> None:
        """A topic's brokers are at other addresses. A new broker knows no member, and is asked who is in a group."""
        if self._consumers and not self._recipients.issuperset(self._connections(self._addresses(slaves=True))):
            self._beat_soon.set()

    async def beat(self) -> bool:
        """Send a heartbeat to each broker in use. Returns whether all responded; the others get one again soon."""
        if not self._producers and not self._consumers:
            return True
        consumers = tuple(group for group, _ in self._consumers.values())
        producers = tuple(ProducerGroup(group) for group in self._producers)
        body = dialect.write(Heartbeat(self._context.client_id, producers, consumers), quoted=True)
        addresses = self._addresses(slaves=bool(consumers))
        connections = self._connections(addresses)
        successes = await self._ask_all(addresses, RequestCode.HEART_BEAT, {}, body)
        self._recipients = set(compress(connections, successes))
        if not all(successes):
            self._beat_soon.set()
        return all(successes)

    def requested(self, link: Link, command: Command) -> None:
        """A broker sent a request."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            try:
                group = ConsumerGroupHeader.of(command).consumer_group
            except RemoteProtocolError:
                return
            if group in self._consumers:
                self._consumers[group][1]()
        elif not command.is_one_way:
            text = f" request type {command.code} not supported"
            link.send(command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text))

    def _addresses(self, *, slaves: bool) -> list[str]:
        addresses = (
            address
            for topic in self._context.routes.topics
            for addresses in topic.addresses.values()
            for broker_id, address in addresses.items()
            if slaves or broker_id == MASTER_ID
        )
        return list(dict.fromkeys(addresses))

    def _connections(self, addresses: Iterable[str]) -> list[NumberedConnection]:
        return [self._context.brokers.connection(address) for address in addresses]

    async def _unregister(self, header: UnregisterClientHeader) -> None:
        fields = header.to_fields()
        await self._ask_all(self._addresses(slaves=True), RequestCode.UNREGISTER_CLIENT, fields, b"")

    async def _ask_all(
        self, addresses: Iterable[str], code: RequestCode, fields: dict[str, str], body: bytes
    ) -> list[bool]:
        """Returns whether each responded with SUCCESS."""
        asks = [self._ask(address, request(code, fields, body)) for address in addresses]
        return await asyncio.gather(*asks)

    async def _ask(self, address: str, command: Command) -> bool:
        context = self._context
        try:
            require_success(await context.remoting.ask(address, command, context.settings.request_timeout_s))
        except TallyError as error:
            if isinstance(error, Unavailable):
                context.brokers.failed(address, context.clock.now())
            context.tell_outage("broker did not take part", address, error, address=address)
            return False
        context.outages.ended(address)
        return True
