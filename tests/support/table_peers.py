"""A master that answers a slave's questions for tables as it is told to, and a slave that copies when it is told to."""

from __future__ import annotations

from collections.abc import Callable

from support.admin_desk import SLAVE, Desk
from support.workers import WorkerAtOnce
from tallystick.rocketmq.broker.copy_proof import UNPROVEN
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.ha.status import FollowStatus
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.server import RemotingServer
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.wire.ha import MasterHello
from tallystick.rocketmq.wire.remoting import Command
from tallystick.runtime.clock import Clock, SystemClock
from tallystick.runtime.machine import this_machine

HELLO = MasterHello(0, 500, 500, instance="first")
PROVEN = FollowStatus("m:1", "following", True, 400, 400, 400, 0, 0, 0, HELLO, "", 1)

React = Callable[[Command], Command | None]


class Master(Desk):
    """With a port. ``react`` by request code goes first; None from it means that the broker answers itself."""

    async def start(self) -> None:
        self.react: dict[int, React] = {}
        self.asked: list[int] = []
        self.fields: dict[str, str] = {}  # of all requests
        self._server = RemotingServer(this_machine(self.events), self, RemotingSettings())
        host, port = await self._server.start("127.0.0.1", 0)
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        await self._server.close()

    def received(self, requests: list[tuple[Link, Command]]) -> None:
        for link, command in requests:
            self.asked.append(command.code)
            self.fields |= command.fields
            react = self.react.get(command.code)
            link.send((react(command) if react else None) or self.handle(command))

    def closed(self, link: Link) -> None:
        pass

    def become_original(self) -> None:
        """From now on it passes over the name of a process in a slave's requests."""
        self.instance = UNPROVEN
        self.restart()

    def refuse(self, code: int) -> None:
        self.react[code] = lambda command: command.response(1, "not now")


class Slave(Desk):
    """Copies what it is told to."""

    def __init__(self) -> None:
        super().__init__(SLAVE)
        self.client = RemotingClient(this_machine(self.events), RemotingSettings())
        self.link = PROVEN
        self.sync = self._sync(0.001, 0.01)

    async def run_seldom(self) -> None:
        """As it is when no timed round is near."""
        self.sync = self._sync(600.0, 600.0)
        await self.sync.take_role(slave=True)

    def copy_queues(self, clock: Clock | None = None) -> None:
        """From now on it learns of its master's queues, too."""
        self.sync = MetadataSync(
            self.client,
            clock=clock or SystemClock(),
            events=self.events,
            tables=self.tables,
            follow_status=lambda: self.link,
            queues=self.shelf.store.replicated,
            worker=WorkerAtOnce(),
        )

    def _sync(self, first_s: float, period_s: float) -> MetadataSync:
        return MetadataSync(
            self.client,
            clock=SystemClock(),
            events=self.events,
            tables=self.tables,
            follow_status=lambda: self.link,
            first_s=first_s,
            period_s=period_s,
        )

    async def copy(self, master: Master) -> dict[str, str]:
        """One round; what failed."""
        await self.sync.sync(master.address)
        return self.sync.status.failures
