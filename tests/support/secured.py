"""Brokers that ask for keys, and peers that sign."""

from __future__ import annotations

from typing import Any

from support.brokers import Bench, Peer
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.broker import Broker
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import AclInfo, EntryInfo, PolicyInfo, UserInfo
from tallystick.rocketmq.wire.remoting import Command, request
from tallystick.rocketmq.wire.signature import Credentials, sign
from tallystick.rocketmq.wire.values import RequestCode

ROOT = Credentials("root", "root-secret-9271")
ACCESS = AccessSettings(authenticates=True, authorizes=True, first_user=ROOT, inner_credentials=ROOT)


class Signing:
    """A peer that signs what it asks."""

    def __init__(self, peer: Peer, credentials: Credentials = ROOT) -> None:
        self.peer, self.credentials = peer, credentials

    async def ask(self, command: Command) -> Command:
        sign(command, self.credentials)
        return await self.peer.ask(command)

    async def code(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.ask(request(code, fields, body))

    async def make_user(self, name: str, password: str, **changes: Any) -> Credentials:
        """Make a user. Returns how he signs."""
        body = dialect.write(UserInfo(name, password, **changes))
        assert (await self.code(RequestCode.AUTH_CREATE_USER, {"username": name}, body)).code == 0
        return Credentials(name, password)

    async def allow(self, name: str, resource: str, *actions: str, decision: str = "Allow") -> Command:
        """Put one entry into the policies of a user."""
        entry = EntryInfo(resource, actions, None, decision)
        body = dialect.write(AclInfo(f"User:{name}", (PolicyInfo("Custom", (entry,)),)))
        return await self.code(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)


async def secured(bench: Bench, **changes: Any) -> tuple[Broker, Signing]:
    """A broker with access control, and its super user."""
    broker = await bench.broker(bench.settings(access=ACCESS, **changes))
    return broker, Signing(await bench.peer(broker))
