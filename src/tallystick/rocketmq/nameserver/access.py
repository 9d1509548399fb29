"""Who may ask a name server, and who may register there: an extension, off by default.

The original's name server asks nobody who he is: whoever reaches it makes clients send to a broker of his own. With
``usersFile`` each request must be signed, as brokers have it::

    [clients]                                   # may look at routes and lists
    producer = "a secret"
    [brokers]                                   # may register, and change everything
    inner = ["the new secret", "the old one"]   # both are taken while they are changed

The file is for nobody else to read. It is read again when it has changed; one that is no good then changes nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.codec.secret_places import MOST_SECRETS
from tallystick.errors import BrokerError, UsageError
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.replays import Replays
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.signature import ACCESS_KEY, ONCE, SIGNATURE, place_of_signer, signed_content
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.once import Once
from tallystick.runtime.outside import Outside
from tallystick.runtime.watched_text import WatchedText

MOST_CHARACTERS = 1024  # of a name or a secret
_OF_CLIENTS = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE,
    )
)  # fmt: skip


@dataclass(frozen=True)
class NameUser:
    """One user: its secrets, the newest one first."""

    secrets: Sequence[str] = field(repr=False)
    is_broker: bool


def parse_users(text: str, path: str) -> Mapping[str, NameUser]:
    """Read the text of a file. Raises UsageError, which names ``path`` and no secret."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # whose text may quote a secret
        raise UsageError("the users are not TOML", path=path) from None
    if document.keys() - {"clients", "brokers"} or not all(isinstance(table, dict) for table in document.values()):
        raise UsageError("the file of users has the tables [clients] and [brokers]", path=path)
    users: dict[str, NameUser] = {}
    for kind, table in document.items():
        for name, given in table.items():
            several = [given] if isinstance(given, str) else given
            if not isinstance(several, list) or not 1 <= len(several) <= MOST_SECRETS or name in users:
                raise UsageError("a user stands once, with a secret or a list of two", path=path, user=name)
            for text_ in (name, *several):
                if not isinstance(text_, str) or not text_.strip() or len(text_) > MOST_CHARACTERS:
                    raise UsageError("names and secrets of users are text, and not empty", path=path, user=name)
            users[name] = NameUser(tuple(several), kind == "brokers")
    return users


class NameGate:
    """Asked before each request. Raises UsageError for a file that is no good."""

    def __init__(self, path: str, outside: Outside, *, lets_unsigned_pass: bool) -> None:
        self._path, self._clock, self._events = path, outside.clock, outside.events
        self._lets_unsigned_pass = lets_unsigned_pass
        self._users = WatchedText(path, parse_users, outside, self._failed)
        self._replays, self._reports = Replays(), Once()

    def __call__(self, link: Link, command: Command) -> None:
        """Raises BrokerError, with NO_PERMISSION, for a request that is refused."""
        undecoded_fields = command.ext
        try:
            self._check(link, command)
        finally:
            command.put_back(undecoded_fields)

    def _check(self, link: Link, command: Command) -> None:
        fields = command.fields
        name, signature = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
        if name is None and self._lets_unsigned_pass:
            if self._reports.is_new(link.host):
                self._events.emit("request not signed", peer=link.peer, code=command.code)
            return
        if not name or not signature:
            raise _refused("the request is not signed: this name server asks for an access key (AccessKey, Signature)")
        user = self._users.value().get(name)
        place = place_of_signer(user.secrets if user is not None else (), signed_content(command), signature)
        if user is None or place is None:
            raise _refused("check signature failed: the access key or its secret is not right")
        if ONCE in fields and (why := self._replays.refusal(name, fields[ONCE], command.code, self._clock.wall_ms())):
            raise _refused(why)
        if not user.is_broker and command.code not in _OF_CLIENTS:
            raise _refused(f"User:{name} may look at routes alone: it is in [clients]")

    def close(self) -> None:
        """Look at its file no more."""
        self._users.close()

    def _failed(self, reason: str) -> None:
        self._events.emit("access file refused", path=self._path, reason=reason)


def _refused(remark: str) -> BrokerError:
    return BrokerError(remark, response_code=ResponseCode.NO_PERMISSION)
