"""A broker makes itself known to each of its name servers, and a slave learns from them where its master is.

At once at the start, when a topic changes and when the connection to a name server is lost, as one that was restarted
knows no broker; and again every 30 s, as it forgets one that is silent for 120 s
(``BrokerController.registerBrokerAll``, ``BrokerOuterAPI``). All topics go each time: where there are very many,
changes wait some moments for each other. A first registration with exactly one topic would be refused there; a broker
has its system topics from the start. Each name server has a task of its own: one that hangs
does not delay the others.

A slave that is there before its master asks for its broker set every second, and registers again when the master is.

What is registered of a topic is its permission as far as the whole broker has it (``brokerPermission``): so producers
leave a broker that is only to be read, and consumers one that is only to be written.

The response to a client that makes a topic is sent when the name servers know it (``when_announced``): else the client
would ask one that does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.broker.registered_topics import fitting
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.bodies import MemberGroup, TopicTable, TopicTableResponse
from tallystick.rocketmq.wire.name_server_headers import BrokerHeader, RegisterBrokerHeader
from tallystick.rocketmq.wire.own_headers import OwnRegisterBrokerResponse
from tallystick.rocketmq.wire.registration import Registration, body_crc, encode_registration
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, RequestCode, ResponseCode
from tallystick.runtime.events import Events

PERIOD_S = 30.0
SEARCH_S = 1.0  # how often a slave that knows no master asks for its broker set
FIRST_RETRY_S = 0.05  # after a failure, or a lost connection; twice as long after each further failure
RETRY_S = 1.0  # at most, where it cannot be reached; one that refuses it is asked again after up to ``PERIOD_S``
TOPICS_A_SECOND = 15_000  # that one name server is told: topics that come and go are told together
FORGET_MS = 120_000  # a name server may forget this broker when it is silent for so long


@dataclass(frozen=True)
class BrokerIdentity:
    """Who a broker is, in any role. Addresses are host:port as others can reach them."""

    cluster: str
    name: str
    address: str
    instance: str = ""  # of its process


@dataclass(frozen=True, kw_only=True)
class Member(BrokerIdentity):
    """A broker's identity, and its role among the brokers of its name."""

    id: int
    ha_address: str


@dataclass(frozen=True)
class Masters:
    """The addresses where a slave's master serves requests and feeds slaves; None if no name server has them."""

    address: str | None = None
    ha_address: str | None = None


class _NameServer:
    """A name server at which this broker registers."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.connection_lost = False  # then it will be due
        self.was_refused = False  # by the last response
        self.failure: str | None = None  # of the last attempt; empty: registered; None: there was none yet
        self.topics = 0  # how many were registered there last
        self.announced_change = 0  # the number of the last change that was registered there
        self.response: OwnRegisterBrokerResponse | None = None  # the last one, while it is registered there


class Registrar:
    """Registers in the background from ``start`` to ``close``.

    ``masters_changed`` is called after each registration with where the master is. An address that nobody knows any
    more keeps its last value: a name server that was restarted, or does not see the master, is no reason to leave it.
    """

    def __init__(
        self,
        client: RemotingClient,
        *,
        events: Events,
        member: Member,
        name_servers: Sequence[str],
        table: Callable[[], Awaitable[TopicTable]],
        masters_changed: Callable[[Masters], None],
        timeout_s: float,
    ) -> None:
        """``timeout_s``: how long a name server may take to respond, and how long ``when_announced`` waits at most."""
        self._client, self._events, self._member = client, events, member
        self._table, self._masters_changed, self._timeout_s = table, masters_changed, timeout_s
        self._servers = {server: _NameServer() for server in name_servers}
        self.tasks: list[asyncio.Task[None]] = []  # what runs from ``start`` to ``close``
        self._masters = Masters()
        self._changes = 1
        self._left_out = 0  # topics that did not fit the last registration
        self._rivals: dict[str, str] = {}  # by name server, the address that it named last
        self._announcements: list[
            tuple[int, Callable[[], None]]
        ] = []  # the change that is to be announced, and what to call then

    @property
    def registered(self) -> dict[str, str]:
        """Returns by name server why the last registration failed; empty if it did not."""
        return {name: server.failure for name, server in self._servers.items() if server.failure is not None}

    @property
    def rival(self) -> str | None:
        """The address of another broker that registers by this one's name and id: routes alternate between the two."""
        return next(iter(self._rivals.values()), None)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._keep(name, server)) for name, server in self._servers.items()]

    def changed(self) -> None:
        """The topics changed: register everywhere now."""
        self._changes += 1
        for server in self._servers.values():
            server.due.set()

    def connection_lost(self, address: str) -> None:
        """The connection to an address ended."""
        server = self._servers.get(address)
        if server is not None and server.failure == "" and not server.connection_lost:
            server.connection_lost = True
            asyncio.get_running_loop().call_later(FIRST_RETRY_S, server.due.set)

    def when_announced(self, done: Callable[[], None]) -> None:
        """Call ``done()`` once: when each name server that can be reached has the topics as they are now, or after the
        time-out; at once if there is no name server."""
        announcement = (self._changes, done)
        self._announcements.append(announcement)
        self._end_announcements()
        if announcement in self._announcements:
            asyncio.get_running_loop().call_later(self._timeout_s, self._give_up, announcement)

    async def become(self, member: Member) -> None:
        """Register as ``member`` from now on, and no more as before."""
        before, self._member = self._member, member
        await self._leave(before)
        self._masters = Masters()
        self.changed()

    async def close(self) -> None:
        """Unregister at all name servers that can be reached."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self._leave(self._member)

    async def _leave(self, member: Member) -> None:
        fields = BrokerHeader(**_header(member)).to_fields()
        leaving = (
            self._client.ask(name, request(RequestCode.UNREGISTER_BROKER, dict(fields)), 0.5)
            for name, failure in self.registered.items()
            if not failure
        )
        await asyncio.gather(*leaving, return_exceptions=True)

    async def _keep(self, name: str, server: _NameServer) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            server.due.clear()
            server.connection_lost = False
            change = self._changes
            server.response = await self._register(name, server)
            if server.response is not None:
                server.announced_change, retry_s = change, FIRST_RETRY_S
                self._masters = self._newest([each.response for each in self._servers.values() if each.response])
                self._note_rival(name, server.response.displaced)
                self._masters_changed(self._masters)
            self._end_announcements()
            with contextlib.suppress(TimeoutError):  # not ``wait_for``: it may swallow the end of this task
                async with asyncio.timeout(PERIOD_S if server.response is not None else retry_s):
                    await asyncio.sleep(server.topics / TOPICS_A_SECOND)
                    await self._until_due(name, server)
            if server.response is None:
                retry_s = min(2 * retry_s, PERIOD_S if server.was_refused else RETRY_S)

    async def _until_due(self, name: str, server: _NameServer) -> None:
        """Wait until a registration is due; a slave whose last one named no master waits for that as well."""
        searches = self._member.id != MASTER_ID and server.response is not None and not server.response.master_addr
        while searches and not server.due.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SEARCH_S):
                    await server.due.wait()
            if await self._has_master(name):
                return
        await server.due.wait()

    async def _has_master(self, name: str) -> bool:
        fields = {"clusterName": self._member.cluster, "brokerName": self._member.name}
        try:
            response = await self._client.ask(
                name, request(RequestCode.GET_BROKER_MEMBER_GROUP, fields), self._timeout_s
            )
            if response.code != ResponseCode.SUCCESS:
                return False
            return MASTER_ID in dialect.read_as(bytes(response.body), MemberGroup).members.addresses
        except TallyError:
            return False

    def _end_announcements(self) -> None:
        """Call those whose topics are registered; a name server that failed gets them when it is back."""
        announced_change = min(
            (server.announced_change for server in self._servers.values() if not server.failure), default=self._changes
        )
        ended = [announcement for announcement in self._announcements if announcement[0] <= announced_change]
        self._announcements = [
            announcement for announcement in self._announcements if announcement[0] > announced_change
        ]
        for _, done in ended:
            done()

    def _give_up(self, announcement: tuple[int, Callable[[], None]]) -> None:
        if announcement in self._announcements:
            self._announcements.remove(announcement)
            announcement[1]()

    def _newest(self, responses: Sequence[OwnRegisterBrokerResponse]) -> Masters:
        masters = [
            response for response in responses if response.master_addr and response.master_addr != self._member.address
        ]
        if not masters:
            return self._masters
        return Masters(masters[0].master_addr, masters[0].ha_server_addr or self._masters.ha_address)

    async def _register(self, name: str, server: _NameServer) -> OwnRegisterBrokerResponse | None:
        server.was_refused = False
        try:
            command = await self._request(server)
            timeout_s = self._timeout_s + server.topics / TOPICS_A_SECOND  # 50,000 are 16 MiB for it to read
            response = await self._client.ask(name, command, timeout_s)
            server.was_refused = response.code != ResponseCode.SUCCESS
            if server.was_refused:
                raise BrokerError(response.remark or "refused", response_code=response.code)
            registration = OwnRegisterBrokerResponse.of(response)
        except TallyError as error:
            self._note_failure(name, server, str(error))
            return None
        self._note_failure(name, server, "")
        return registration

    def _note_failure(self, name: str, server: _NameServer, failure: str) -> None:
        """Emit one event when registrations begin to fail and one when they work again: not one every 30 s."""
        before, server.failure = server.failure, failure
        if failure and not before:
            self._events.emit("cannot register with a name server", name_server=name, reason=failure)
        elif not failure and before != "":
            self._events.emit("registered with a name server", name_server=name, broker=self._member.name)

    def _note_rival(self, name: str, rival: str | None) -> None:
        """Emit one event when a rival is there and one when it is gone."""
        before, member = self.rival, self._member
        if rival is None:
            self._rivals.pop(name, None)
        else:
            self._rivals[name] = rival
        if self.rival is not None and before is None:
            self._events.emit(
                "another broker of this id", broker=member.name, id=member.id, other=self.rival, name_server=name
            )
        elif self.rival is None and before is not None:
            self._events.emit("only broker of this id", broker=member.name, id=member.id, was=before)

    def _note_left_out(self, count: int) -> None:
        """Emit one event when topics do not fit any more and one when they do."""
        before, self._left_out = self._left_out, count
        if count and not before:
            reason = "the names of all do not fit one registration"
            self._events.emit("topics not registered", broker=self._member.name, topics=count, reason=reason)
        elif before and not count:
            self._events.emit("all topics registered", broker=self._member.name)

    async def _request(self, server: _NameServer) -> Command:
        everything = await self._table()
        table = await fitting(everything)
        self._note_left_out(len(everything.topics) - len(table.topics))
        server.topics = len(table.topics)
        body = encode_registration(Registration(TopicTableResponse(table.version, table.topics)))
        header = RegisterBrokerHeader(
            **_header(self._member),
            ha_server_addr=self._member.ha_address,
            heartbeat_timeout_millis=FORGET_MS,
            enable_acting_master=False,
            body_crc32=body_crc(body),
        )
        return request(RequestCode.REGISTER_BROKER, header.to_fields(), body)


def _header(member: Member) -> dict[str, Any]:
    return {
        "broker_name": member.name,
        "broker_addr": member.address,
        "cluster_name": member.cluster,
        "broker_id": member.id,
    }
