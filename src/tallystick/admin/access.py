"""Users and policies of a broker, as an operator puts them there."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.admin.plain_acl import PlainAcl
from tallystick.errors import BrokerError
from tallystick.rocketmq.client.responses import require_success
from tallystick.rocketmq.remoting.client import RemotingClient, parse_address
from tallystick.rocketmq.remoting.security import open_client
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import AclInfo, UserInfo
from tallystick.rocketmq.wire.remoting import request
from tallystick.rocketmq.wire.values import RequestCode
from tallystick.runtime.machine import this_machine

RESPONSE_S = 5.0


@dataclass(frozen=True)
class ImportedUser:
    """What became of one account."""

    user: str
    user_type: str
    entries: int
    is_new: bool


async def import_plain_acl(address: str, acl: PlainAcl) -> list[ImportedUser]:
    """Put all accounts into the broker at ``address``, a master. Users that are there get the secret, the type and the
    entries of the file; other entries of theirs stay. Raises UsageError, BrokerError, Unavailable."""
    parse_address(address)
    remoting = open_client(this_machine(), None)
    try:
        return [await _import(remoting, address, user.user, AclInfo(None, user.policies)) for user in acl.users]
    finally:
        await remoting.close()


async def _import(remoting: RemotingClient, address: str, user: UserInfo, acl: AclInfo) -> ImportedUser:
    name = user.username or ""

    async def ask(code: RequestCode, fields: dict[str, str], body: bytes) -> None:
        response = await remoting.ask(address, request(code, fields, body), RESPONSE_S)
        require_success(response, request=code.name, user=name)

    is_new = True
    try:
        await ask(RequestCode.AUTH_CREATE_USER, {"username": name}, dialect.write(user))
    except BrokerError as error:
        if "is existed" not in error.message:
            raise
        is_new = False
        await ask(RequestCode.AUTH_UPDATE_USER, {"username": name}, dialect.write(user))
    subject = f"User:{name}"
    if acl.policies:
        body = dialect.write(AclInfo(subject, acl.policies))
        await ask(RequestCode.AUTH_UPDATE_ACL, {"subject": subject}, body)
    count = sum(len(policy.entries or ()) for policy in acl.policies or ())
    return ImportedUser(name, user.user_type or "", count, is_new)
