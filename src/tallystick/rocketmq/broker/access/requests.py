"""Requests that make, change, delete and list users and their policies: 3001 to 3010 (``AdminBrokerProcessor``).

Passwords are shown to super users alone, whose tools copy users from one broker to another. A slave takes no changes:
its users are its master's. Who changed whom is logged each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access.gate import no_permission
from tallystick.rocketmq.broker.access.rules import Policies, read_policies, read_policy_type, read_resource
from tallystick.rocketmq.broker.access.table import STATUSES, TYPES, AccessTable, User, with_policies
from tallystick.rocketmq.broker.responses import MAX_LIST_BYTES, OK, refusal
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.remoting.dispatch import Handler, Reply
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.wire import dialect
from tallystick.rocketmq.wire.access import AclInfo, AuthenticationInfo, PolicyInfo, UserInfo
from tallystick.rocketmq.wire.remoting import Command
from tallystick.rocketmq.wire.signature import ACCESS_KEY
from tallystick.rocketmq.wire.values import RequestCode, ResponseCode
from tallystick.runtime.events import Events

MAX_LISTED = 1000  # users, or policies, of one response
_SUBJECT = "user:"

Change = Callable[[Command, User], str]  # of a request by this user; returns what was done
T = TypeVar("T")


class AccessRequests:
    """See the module. ``table`` is None where ``authenticationEnabled`` is false: whoever asks would see all
    secrets."""

    def __init__(
        self, table: AccessTable | None, standing: Standing, events: Events, info: Callable[[], AuthenticationInfo]
    ) -> None:
        """``info``: whom the broker asks for a key, and who came."""
        self._table, self._standing, self._events = table or AccessTable(), standing, events
        self._info = info
        self._is_on = table is not None
        changes: Mapping[int, Change] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_CREATE_ACL: self._put_acl,
            RequestCode.AUTH_UPDATE_ACL: self._put_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
        }
        self.handlers: Mapping[int, Handler] = {
            **{code: self._changing(change) for code, change in changes.items()},
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
            RequestCode.GET_AUTHENTICATION: lambda link, command, reply: command.response(
                OK, body=dialect.write(self._info())
            ),
        }

    # Changes

    def _changing(self, change: Change) -> Handler:
        def handle(link: Link, command: Command, reply: Reply) -> Command:
            asker = self._asker(command)
            if self._standing.is_slave:
                raise refusal(ResponseCode.SYSTEM_ERROR, "This is a slave: its users are its master's.")
            try:
                done = change(command, asker)
            except UsageError as error:
                raise no_permission(error.message) from error
            self._events.emit("access changed", by=asker.name, peer=link.peer, what=done)
            return command.response(OK)

        return handle

    def _create_user(self, command: Command, asker: User) -> str:
        info = self._user_info(command)
        if info.username in self._table.users:
            raise no_permission("The user is existed")
        user = User(info.username or "", (info.password or "",), _is_super(info, False), _is_enabled(info, True))
        _check_rank(asker, user)
        self._table.put(user)
        return f"user {user.name} created, {user.type_name}"

    def _update_user(self, command: Command, asker: User) -> str:
        info = self._user_info(command)
        old = self._known_user(info.username)
        user = replace(
            old,
            secrets=(info.password,) if info.password else old.secrets,
            is_super=_is_super(info, old.is_super),
            is_enabled=_is_enabled(info, old.is_enabled),
        )
        _check_rank(asker, old, user)
        self._table.put(user)
        changed = "with a new password" if user.secrets != old.secrets else "with its password"
        return f"user {user.name} changed: {user.type_name}, {user.status_name}, {changed}"

    def _delete_user(self, command: Command, asker: User) -> str:
        name = command.fields.get("username", "")
        user = self._table.users.get(name)
        if user is not None:
            _check_rank(asker, user)
        self._table.remove(name)
        return f"user {name} deleted"

    def _put_acl(self, command: Command, asker: User) -> str:
        info = _read(command, AclInfo)
        user = self._subject(info.subject or command.fields.get("subject"))
        _check_rank(asker, user)
        policies = read_policies(info.policies)
        self._table.put(with_policies(user, user.policies.updated(policies)))
        resources = ", ".join(str(entry.resource) for entry in (*policies.custom, *policies.default)[:10])
        return f"policies of user {user.name} set for {resources}"

    def _delete_acl(self, command: Command, asker: User) -> str:
        fields = command.fields
        user = self._subject(fields.get("subject"))
        _check_rank(asker, user)
        if not user.policies:
            raise no_permission("The acl is not exist.")
        policies, resource = Policies(), fields.get("resource")
        if resource:
            policies = user.policies.without(read_policy_type(fields.get("policyType")), read_resource(resource))
        self._table.put(with_policies(user, policies))
        return f"policies of user {user.name} deleted for {resource or 'every resource'}"

    # Lists

    def _get_user(self, link: Link, command: Command, reply: Reply) -> Command:
        asker, name = self._asker(command), command.fields.get("username", "")
        if not name.strip():
            raise refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
        user = self._table.users.get(name)
        return command.response(OK, body=b"" if user is None else dialect.write(_shown(user, asker)))

    def _list_users(self, link: Link, command: Command, reply: Reply) -> Command:
        asker, pattern = self._asker(command), command.fields.get("filter", "")
        users = [_shown(user, asker) for name, user in self._table.users.items() if pattern in name]
        return _list(command, users)

    def _get_acl(self, link: Link, command: Command, reply: Reply) -> Command:
        self._asker(command)
        user = self._subject(command.fields.get("subject"))
        body = dialect.write(AclInfo(_key(user), user.policies.infos())) if user.policies else b""
        return command.response(OK, body=body)

    def _list_acls(self, link: Link, command: Command, reply: Reply) -> Command:
        self._asker(command)
        subject, resource = command.fields.get("subjectFilter", ""), command.fields.get("resourceFilter", "")
        acls: list[AclInfo] = []
        for user in self._table.users.values():
            key = _key(user)
            infos: tuple[PolicyInfo, ...] = ()
            if subject in key:
                infos = user.policies.infos("" if resource in key else resource)
            if infos:
                acls.append(AclInfo(key, infos))
        return _list(command, acls)

    # What they share

    def _asker(self, command: Command) -> User:
        """Returns who asks. Raises BrokerError if this broker does not ask who that is."""
        user = self._table.users.get(command.fields.get(ACCESS_KEY, ""))
        if not self._is_on or user is None:
            raise no_permission("this broker asks nobody for a key (authenticationEnabled), and tells nobody any")
        return user

    def _user_info(self, command: Command) -> UserInfo:
        name = command.fields.get("username", "")
        if not name.strip():
            raise refusal(ResponseCode.INVALID_PARAMETER, "The username is blank")
        info = _read(command, UserInfo)
        return UserInfo(name, info.password, info.user_type, info.user_status)

    def _known_user(self, name: str | None) -> User:
        user = self._table.users.get(name or "")
        if user is None:
            raise no_permission("The user is not exist")
        return user

    def _subject(self, key: str | None) -> User:
        key = key or ""
        if not key.lower().startswith(_SUBJECT):
            raise no_permission("The subject type is null.")
        user = self._table.users.get(key[len(_SUBJECT) :])
        if user is None:
            raise no_permission(f"The subject of {key[:100]} is not exist.")
        return user


def _read(command: Command, kind: type[T]) -> T:
    return dialect.read_short(command.body, kind, most_bytes=MAX_LIST_BYTES)


def _list(command: Command, infos: list[UserInfo] | list[AclInfo]) -> Command:
    if len(infos) > MAX_LISTED:
        raise refusal(ResponseCode.SYSTEM_ERROR, f"more than {MAX_LISTED}: ask with a filter")
    return command.response(OK, body=dialect.write(infos) if infos else b"")


def _shown(user: User, asker: User) -> UserInfo:
    password = user.secrets[0] if asker.is_super else None
    return UserInfo(user.name, password, user.type_name, user.status_name)


def _key(user: User) -> str:
    return f"User:{user.name}"


def _check_rank(asker: User, *users: User) -> None:
    """Raises BrokerError if a super user is changed, or made, by one who is none."""
    if not asker.is_super and any(user.is_super for user in users):
        raise no_permission("The super user can only be update by super user")


def _is_super(info: UserInfo, otherwise: bool) -> bool:
    return _one_of(info.user_type, TYPES, "userType") == "Super" if info.user_type else otherwise


def _is_enabled(info: UserInfo, otherwise: bool) -> bool:
    return _one_of(info.user_status, STATUSES, "userStatus") == "enable" if info.user_status else otherwise


def _one_of(name: str, names: Mapping[str, str], what: str) -> str:
    value = names.get(name.lower())
    if value is None:
        raise UsageError(f"{what} is {' or '.join(names.values())}")
    return value
