"""A broker makes itself known to each of its name servers, and a slave learns from them where its master is.

At once at the start and when a topic changes, and again every 30 s: a name server forgets who is silent for 120 s, and
one that was restarted knows nobody (``BrokerController.registerBrokerAll``, ``BrokerOuterAPI``). A first registration
with exactly one topic would be refused there; a broker has its system topics from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.bodies import TopicTable, TopicTableAnswer
from tallystick.rocketmq.wire.headers import BrokerHeader, RegisterBrokerAnswer, RegisterBrokerHeader
from tallystick.rocketmq.wire.registration import Registration, body_crc, encode_registration
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.events import Events

PERIOD_S = 30.0
RETRY_S = 3.0  # after a round that reached no name server
ANSWER_S = 3.0
FORGET_MS = 120_000  # a name server may forget this broker when it is silent for so long


@dataclass(frozen=True)
class Identity:
    """Who a broker is. Addresses are host:port as others can reach them."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    instance: str = ""  # of its process


@dataclass(frozen=True)
class Masters:
    """What a slave was told: where its master answers requests, and where it feeds slaves. None: nobody knows."""

    address: str | None = None
    ha_address: str | None = None


class Registrar:
    """Registers in the background from ``start`` to ``close``.

    ``found`` hears after each round where the master is. What nobody knows any more keeps its last value: a name server
    that was restarted, or has lost sight of the master, is no reason to leave it.
    """

    def __init__(
        self,
        client: RemotingClient,
        events: Events,
        identity: Identity,
        name_servers: Sequence[str],
        table: Callable[[], TopicTable],
        found: Callable[[Masters], None],
    ) -> None:
        self._client, self._events, self._identity = client, events, identity
        self._name_servers, self._table, self._found = tuple(name_servers), table, found
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._masters = Masters()
        self.registered: dict[str, str] = {}  # name server to what went wrong last; empty: registered

    def start(self) -> None:
        if self._name_servers:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def changed(self) -> None:
        """The topics changed: tell everyone now."""
        self._due.set()

    async def close(self) -> None:
        """Take leave of all name servers that can be reached."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        fields = BrokerHeader(**self._header()).to_fields()
        leaving = (
            self._client.ask(server, request(RequestCode.UNREGISTER_BROKER, dict(fields)), 0.5)
            for server, failure in self.registered.items()
            if not failure
        )
        await asyncio.gather(*leaving, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._due.clear()
            answers = await asyncio.gather(*map(self._register, self._name_servers))
            told = [answer for answer in answers if answer is not None]
            if told:
                self._masters = self._newest(told)
                self._found(self._masters)
            try:
                await asyncio.wait_for(self._due.wait(), PERIOD_S if told else RETRY_S)
            except TimeoutError:
                continue

    def _newest(self, told: Sequence[RegisterBrokerAnswer]) -> Masters:
        masters = [answer for answer in told if answer.master_addr and answer.master_addr != self._identity.address]
        if not masters:
            return self._masters
        return Masters(masters[0].master_addr, masters[0].ha_server_addr or self._masters.ha_address)

    async def _register(self, server: str) -> RegisterBrokerAnswer | None:
        try:
            answer = await self._client.ask(server, self._request(), ANSWER_S)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.remark or "refused", response_code=answer.code)
            told = RegisterBrokerAnswer.of(answer)
        except TallyError as error:
            self._note(server, str(error))
            return None
        self._note(server, "")
        return told

    def _note(self, server: str, failure: str) -> None:
        """Once when it begins to fail and once when it works: not every 30 s."""
        before = self.registered.get(server)
        if failure and not before:
            self._events.emit("cannot register with a name server", name_server=server, reason=failure)
        elif not failure and before != "":
            self._events.emit("registered with a name server", name_server=server, broker=self._identity.name)
        self.registered[server] = failure

    def _request(self) -> Command:
        table = self._table()
        body = encode_registration(Registration(TopicTableAnswer(table.version, table.topics)))
        header = RegisterBrokerHeader(
            **self._header(),
            ha_server_addr=self._identity.ha_address,
            heartbeat_timeout_millis=FORGET_MS,
            enable_acting_master=False,
            body_crc32=body_crc(body),
        )
        return request(RequestCode.REGISTER_BROKER, header.to_fields(), body)

    def _header(self) -> dict[str, Any]:
        me = self._identity
        return {"broker_name": me.name, "broker_addr": me.address, "cluster_name": me.cluster, "broker_id": me.id}
