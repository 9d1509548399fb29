"""A broker makes itself known to each of its name servers, and a slave learns from them where its master is.

At once at the start, when a topic changes and when the connection to a name server is lost, as one that was restarted
knows nobody; and again every 30 s, as it forgets who is silent for 120 s (``BrokerController.registerBrokerAll``,
``BrokerOuterAPI``). All topics go each time: where there are very many, changes wait some moments for each other. A
first registration with exactly one topic would be refused there; a broker has its system topics from the start.
Each name server has a task of its own: one that hangs keeps the others from nothing.

A slave that is there before its master asks for its broker set every second, and registers again when the master is.

What is registered of a topic is its permission as far as the whole broker has it (``brokerPermission``): so producers
leave a broker that is only to be read, and consumers one that is only to be written.

Who made a topic is answered when the name servers know it (``announced``): else it would ask one that does not.
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
from tallystick.rocketmq.wire.headers import BrokerHeader, RegisterBrokerHeader
from tallystick.rocketmq.wire.own_headers import OwnRegisterBrokerResponse
from tallystick.rocketmq.wire.registration import Registration, body_crc, encode_registration
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import MASTER_ID, RequestCode, ResponseCode
from tallystick.runtime.events import Events

PERIOD_S = 30.0
SEARCH_S = 1.0  # how often a slave that was told of no master asks for its broker set
FIRST_RETRY_S = 0.05  # after a failure, or a lost connection; twice as long after each further failure
RETRY_S = 1.0  # at most, where it cannot be reached; one that refuses it is asked again after up to ``PERIOD_S``
TOPICS_A_SECOND = 15_000  # that one name server is told: topics that come and go are told together
FORGET_MS = 120_000  # a name server may forget this broker when it is silent for so long


@dataclass(frozen=True)
class Identity:
    """Who a broker is, in any role. Addresses are host:port as others can reach them."""

    cluster: str
    name: str
    address: str
    instance: str = ""  # of its process


@dataclass(frozen=True, kw_only=True)
class Member(Identity):
    """And what it is among the brokers of its name, now."""

    id: int
    ha_address: str


@dataclass(frozen=True)
class Masters:
    """What a slave was told: where its master answers requests, and where it feeds slaves. None: nobody knows."""

    address: str | None = None
    ha_address: str | None = None


class _NameServer:
    """One that is to know this broker."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.lost = False  # its connection, and it will be due for that
        self.refused = False  # by the last answer
        self.failure: str | None = None  # of the last attempt; empty: registered; None: there was none yet
        self.topics = 0  # that it was told last
        self.known = 0  # the number of the last change that it was told
        self.answer: OwnRegisterBrokerResponse | None = None  # the last one, while it is registered there


class Registrar:
    """Registers in the background from ``start`` to ``close``.

    ``found`` hears after each registration where the master is. What nobody knows any more keeps its last value: a name
    server that was restarted, or has lost sight of the master, is no reason to leave it.
    """

    def __init__(
        self,
        client: RemotingClient,
        events: Events,
        member: Member,
        name_servers: Sequence[str],
        table: Callable[[], Awaitable[TopicTable]],
        found: Callable[[Masters], None],
        timeout_s: float,
    ) -> None:
        """``timeout_s``: how long a name server may take to answer, and how long ``announced`` waits at most."""
        self._client, self._events, self._member = client, events, member
        self._table, self._found, self._timeout_s = table, found, timeout_s
        self._servers = {server: _NameServer() for server in name_servers}
        self.tasks: list[asyncio.Task[None]] = []  # what runs from ``start`` to ``close``
        self._masters = Masters()
        self._changes = 1
        self._left_out = 0  # topics that did not fit the last registration
        self._rivals: dict[str, str] = {}  # by name server, what it said last
        self._waiting: list[tuple[int, Callable[[], None]]] = []  # for which change, and whom to call then

    @property
    def registered(self) -> dict[str, str]:
        """Name server to what went wrong last; empty: registered."""
        return {name: server.failure for name, server in self._servers.items() if server.failure is not None}

    @property
    def rival(self) -> str | None:
        """Where another broker registers by this one's name and id: routes lead now here, now there."""
        return next(iter(self._rivals.values()), None)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._keep(name, server)) for name, server in self._servers.items()]

    def changed(self) -> None:
        """The topics changed: tell everyone now."""
        self._changes += 1
        for server in self._servers.values():
            server.due.set()

    def lost(self, address: str) -> None:
        """The connection to an address ended."""
        server = self._servers.get(address)
        if server is not None and server.failure == "" and not server.lost:
            server.lost = True
            asyncio.get_running_loop().call_later(FIRST_RETRY_S, server.due.set)

    def announced(self, done: Callable[[], None]) -> None:
        """``done()`` is called once: when each name server that can be reached knows the topics as they are now, or
        after the time-out. At once where there is none to tell."""
        entry = (self._changes, done)
        self._waiting.append(entry)
        self._settle()
        if entry in self._waiting:
            asyncio.get_running_loop().call_later(self._timeout_s, self._give_up, entry)

    async def become(self, member: Member) -> None:
        """Be registered as this from now on, and as what it was no more."""
        before, self._member = self._member, member
        await self._leave(before)
        self._masters = Masters()
        self.changed()

    async def close(self) -> None:
        """Take leave of all name servers that can be reached."""
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
            server.lost = False
            change = self._changes
            server.answer = await self._register(name, server)
            if server.answer is not None:
                server.known, retry_s = change, FIRST_RETRY_S
                self._masters = self._newest([each.answer for each in self._servers.values() if each.answer])
                self._note_rival(name, server.answer.displaced)
                self._found(self._masters)
            self._settle()
            with contextlib.suppress(TimeoutError):  # not ``wait_for``: it may swallow the end of this task
                async with asyncio.timeout(PERIOD_S if server.answer is not None else retry_s):
                    await asyncio.sleep(server.topics / TOPICS_A_SECOND)
                    await self._until_due(name, server)
            if server.answer is None:
                retry_s = min(2 * retry_s, PERIOD_S if server.refused else RETRY_S)

    async def _until_due(self, name: str, server: _NameServer) -> None:
        """Also when a master is there of which the last registration did not tell this slave."""
        searches = self._member.id != MASTER_ID and server.answer is not None and not server.answer.master_addr
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
            answer = await self._client.ask(name, request(RequestCode.GET_BROKER_MEMBER_GROUP, fields), self._timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                return False
            return MASTER_ID in dialect.read_as(bytes(answer.body), MemberGroup).members.addresses
        except TallyError:
            return False

    def _settle(self) -> None:
        """Call those who wait for nothing any more: a name server that failed learns of the change when it is back."""
        known = min((server.known for server in self._servers.values() if not server.failure), default=self._changes)
        over = [entry for entry in self._waiting if entry[0] <= known]
        self._waiting = [entry for entry in self._waiting if entry[0] > known]
        for _, done in over:
            done()

    def _give_up(self, entry: tuple[int, Callable[[], None]]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            entry[1]()

    def _newest(self, told: Sequence[OwnRegisterBrokerResponse]) -> Masters:
        masters = [answer for answer in told if answer.master_addr and answer.master_addr != self._member.address]
        if not masters:
            return self._masters
        return Masters(masters[0].master_addr, masters[0].ha_server_addr or self._masters.ha_address)

    async def _register(self, name: str, server: _NameServer) -> OwnRegisterBrokerResponse | None:
        server.refused = False
        try:
            command = await self._request(server)
            timeout_s = self._timeout_s + server.topics / TOPICS_A_SECOND  # 50,000 are 16 MiB for it to read
            answer = await self._client.ask(name, command, timeout_s)
            server.refused = answer.code != ResponseCode.SUCCESS
            if server.refused:
                raise BrokerError(answer.remark or "refused", response_code=answer.code)
            told = OwnRegisterBrokerResponse.of(answer)
        except TallyError as error:
            self._note(name, server, str(error))
            return None
        self._note(name, server, "")
        return told

    def _note(self, name: str, server: _NameServer, failure: str) -> None:
        """Once when it begins to fail and once when it works: not every 30 s."""
        before, server.failure = server.failure, failure
        if failure and not before:
            self._events.emit("cannot register with a name server", name_server=name, reason=failure)
        elif not failure and before != "":
            self._events.emit("registered with a name server", name_server=name, broker=self._member.name)

    def _note_rival(self, name: str, rival: str | None) -> None:
        """Once when it is there and once when it is gone."""
        before, me = self.rival, self._member
        if rival is None:
            self._rivals.pop(name, None)
        else:
            self._rivals[name] = rival
        if self.rival is not None and before is None:
            self._events.emit(
                "another broker of this id", broker=me.name, id=me.id, other=self.rival, name_server=name
            )  # fmt: skip
        elif self.rival is None and before is not None:
            self._events.emit("only broker of this id", broker=me.name, id=me.id, was=before)

    def _note_left_out(self, count: int) -> None:
        """Once when topics do not fit any more and once when they do."""
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


def _header(me: Member) -> dict[str, Any]:
    return {"broker_name": me.name, "broker_addr": me.address, "cluster_name": me.cluster, "broker_id": me.id}
