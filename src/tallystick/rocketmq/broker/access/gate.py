"""Each request is checked here before it does anything: is it signed, and may its user send it?

A refusal says the same whether there is no such user, his secret is another one, or he is disabled. Once is logged that
a kind of request of a host was refused (``remoting/refusals.py``), whatever a peer sends.
"""

from __future__ import annotations

from tallystick.errors import BrokerError, TallyError
from tallystick.rocketmq.broker.access.metrics import AccessCounts
from tallystick.rocketmq.broker.access.needs import needs_of
from tallystick.rocketmq.broker.access.settings import AccessSettings
from tallystick.rocketmq.broker.access.table import AccessTable, User
from tallystick.rocketmq.broker.responses import refusal
from tallystick.rocketmq.ha.entry import is_among
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.replays import Replays
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.signature import ACCESS_KEY, ONCE, SIGNATURE, signed_content
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.once import Once
from tallystick.runtime.peer_counts import PeerCounts

ACCESS = "access"  # the table of users, as slaves name it
ANONYMOUS = "anonymous"  # in the counts: who does not sign
_OF_USERS = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)


class AccessGate:
    """Without ``authorizationEnabled`` whoever has a key may send everything but requests about users. With
    ``allowAnonymous`` requests without a key pass, as long as a cluster is being changed over, and those from
    ``whiteAddresses`` always; each host that sends some is told once."""

    def __init__(
        self, table: AccessTable, cluster: str, settings: AccessSettings, clock: Clock, events: Events
    ) -> None:
        self._table, self._cluster, self._clock, self._events = table, cluster, clock, events
        self._authorizes, self._lets_unsigned_pass = settings.authorizes, settings.anonymous
        self._white_addresses = settings.white_addresses
        self._reports, self._replays = Once(), Replays()
        self.counts, self.peers = AccessCounts(), PeerCounts()

    def __call__(self, link: Link, command: Command) -> None:
        """Raises BrokerError, with NO_PERMISSION, for a request that is refused."""
        undecoded_fields = command.ext
        try:
            self._check(link, command)
        except TallyError:  # of a request that is none, too
            self.counts.refused += 1
            raise
        finally:
            command.put_back(undecoded_fields)

    def _check(self, link: Link, command: Command) -> None:
        if self._may_be_unsigned(link, command):
            self.counts.unsigned += 1
            self.peers.count(link.host, ANONYMOUS, "came")
            if self._reports.is_new(link.host):
                self._events.emit("request not signed", peer=link.peer, code=command.code)
            return
        user = self._user(link, command)
        try:
            self._check_permission(link, command, user)
        except BrokerError:
            self.peers.count(link.host, f"user {user.name}", "refused")
            raise

    def _check_permission(self, link: Link, command: Command, user: User) -> None:
        if user.is_super:
            return
        if self._is_of_super_users(command):
            raise no_permission(f"User:{user.name} is no super user")
        if not self._authorizes:
            return
        for need in needs_of(command, self._cluster):
            if not self._table.allows(user, need, link.host):
                what = f"{need.kind.value}:{need.name}"
                raise no_permission(f"User:{user.name} has no permission to access {what} from {link.host}")

    def _may_be_unsigned(self, link: Link, command: Command) -> bool:
        if ACCESS_KEY in command.fields or self._is_of_super_users(command):
            return False
        return self._lets_unsigned_pass or is_among(link.host, self._white_addresses)

    def _is_of_super_users(self, command: Command) -> bool:
        """Whether super users alone may send the request, whatever policies say."""
        if command.code == RequestCode.GET_TABLE_PAGE:
            return command.fields.get("table") == ACCESS
        return not self._authorizes and command.code in _OF_USERS

    def _user(self, link: Link, command: Command) -> User:
        fields = command.fields
        name, signature = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
        if not name or not signature:
            self.peers.count(link.host, ANONYMOUS, "refused")
            raise no_permission("the request is not signed: this broker asks for an access key (AccessKey, Signature)")
        signer = self._table.authenticate(name, signed_content(command), signature)
        if signer is None:
            self.peers.count(link.host, "unknown", "refused")
            raise no_permission("check signature failed: the access key or its secret is not right")
        if ONCE in fields and (why := self._replays.refusal(name, fields[ONCE], command.code, self._clock.wall_ms())):
            self.peers.count(link.host, "unknown", "refused")
            raise no_permission(why)
        user, is_old = signer
        self.peers.count(link.host, f"user {user.name}", "came")
        if is_old:
            self.counts.old_secrets += 1
            self.peers.count(link.host, f"user {user.name}", "old secret")
        return user


def no_permission(remark: str) -> BrokerError:
    """Returns the refusal to raise."""
    return refusal(ResponseCode.NO_PERMISSION, remark)
