"""The name server: requests in, routes out, and an eye on brokers that have gone silent."""

from __future__ import annotations

import asyncio

from tallystick.rocketmq.nameserver.kv import KvConfig
from tallystick.rocketmq.nameserver.requests import NameRequests
from tallystick.rocketmq.nameserver.routes import Announcement, Routes
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.refused import Refused
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.remoting import Command
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events
from tallystick.runtime.network import Network


class NameServer:
    """``start`` it on a running loop, then ``close`` it. Raises UsageError for a damaged configuration file."""

    def __init__(
        self, network: Network, disk: Disk, clock: Clock, events: Events, settings: NameServerSettings
    ) -> None:
        self.routes = Routes(
            delete_missing_topics=settings.delete_topic_with_registration,
            acting_masters=settings.support_acting_master,
        )
        self._settings, self._clock, self._events = settings, clock, events
        config = KvConfig(disk, settings.kv_config_path)
        self._requests = NameRequests(self.routes, config, settings, clock, events)
        self._server = RemotingServer(network, clock, events, self, RemotingSettings())
        self._refused = Refused(events)
        self._scanner: asyncio.TimerHandle | None = None

    async def start(self) -> tuple[str, int]:
        """Where it listens. Raises OSError."""
        address = await self._server.start(self._settings.bind_host, self._settings.port)
        self._scan()
        return address

    async def close(self) -> None:
        if self._scanner is not None:
            self._scanner.cancel()
        await self._server.close()

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        for link, command in requests:
            answer = self._requests.answer(link, command)
            self._refused.answered(link.peer, command, answer)
            if not command.is_one_way:
                link.send(answer)

    def closed(self, link: Link) -> None:
        self._tell_gone(self.routes.closed(link), "its connection ended")

    def _scan(self) -> None:
        self._tell_gone(self.routes.expire(self._clock.now()), "it was silent for too long")
        self._scanner = asyncio.get_running_loop().call_later(self._settings.scan_interval_s, self._scan)

    def _tell_gone(self, gone: list[Announcement], reason: str) -> None:
        for announced in gone:
            self._events.emit(
                "broker unregistered",
                broker=announced.name,
                id=announced.broker_id,
                at=announced.address,
                reason=reason,
            )
