"""Access control of RocketMQ 4.9, ``plain_acl.yml``: read, and turned into users and policies (``AuthMigrator``).

Only what such a file has is read, by a reader of its own: lists of addresses, and accounts of single values and lists.
Anything else is refused with its line, for what is not understood could be what keeps somebody out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.rocketmq.wire.access import EntryInfo, PolicyInfo, UserInfo

MAX_BYTES = 4 * 1024 * 1024
_PERMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "DENY": (("All",), "Deny"),
    "PUB": (("Pub",), "Allow"),
    "SUB": (("Sub", "Get"), "Allow"),
    "PUB|SUB": (("Pub", "Sub", "Get"), "Allow"),
    "SUB|PUB": (("Pub", "Sub", "Get"), "Allow"),
}
_SINGLE = ("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm")
_LISTS = ("topicPerms", "groupPerms")
_LINE = re.compile(r"( *)(- +|-$)?(?:([A-Za-z]+) *:(?: +(.*))?|(.*))")

Account = dict[str, str | list[str]]


@dataclass(frozen=True)
class PlainUser:
    """One account as requests have it."""

    user: UserInfo
    policies: tuple[PolicyInfo, ...]


@dataclass(frozen=True)
class PlainAcl:
    """A whole file. ``white_addresses`` let in who does not sign, whoever that is."""

    users: tuple[PlainUser, ...]
    white_addresses: tuple[str, ...]


def read_plain_acl(text: str) -> PlainAcl:
    """Read a file. Raises UsageError, which shows no secret."""
    if len(text) > MAX_BYTES:
        raise UsageError(f"a plain_acl.yml has at most {MAX_BYTES} characters")
    addresses, accounts = _read(text)
    users: dict[str, PlainUser] = {}
    for account in accounts:
        user = _user_of(account)
        if user.user.username in users:
            raise UsageError("an access key has two accounts", accessKey=user.user.username)
        users[user.user.username or ""] = user
        addresses += [address for address in [_text(account, "whiteRemoteAddress")] if address]
    return PlainAcl(tuple(users.values()), tuple(map(_network, addresses)))


def _read(text: str) -> tuple[list[str], list[Account]]:
    addresses: list[str] = []
    accounts: list[Account] = []
    section, inner = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if not line or line == "---":
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, "anything matches"
        indent, dash, key, value, item = len(match[1]), bool(match[2]), match[3], _plain(match[4]), _plain(match[5])
        if not indent and not dash and key in ("globalWhiteRemoteAddresses", "accounts") and not value:
            section, inner = key, ""
        elif section == "globalWhiteRemoteAddresses" and dash and item:
            addresses.append(item)
        elif section == "accounts" and key in (*_SINGLE, *_LISTS) and (dash or accounts):
            if dash:
                accounts.append({})
            if key in accounts[-1] or (key in _LISTS and value):
                raise UsageError("a line of the plain_acl.yml is not understood", line=number)
            inner = key if key in _LISTS else ""
            accounts[-1][key] = [] if inner else value
        elif section == "accounts" and inner and dash and item:
            entries = accounts[-1][inner]
            assert isinstance(entries, list), "of a list"
            entries.append(item)
        else:
            raise UsageError("a line of the plain_acl.yml is not understood", line=number)
    return addresses, accounts


def _plain(value: str | None) -> str:
    value = (value or "").strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _user_of(account: Account) -> PlainUser:
    name, secret = _text(account, "accessKey"), _text(account, "secretKey")
    if not name or not secret:
        raise UsageError("an account has no accessKey, or no secretKey", accessKey=name)
    admin = _text(account, "admin").lower() or "false"
    if admin not in ("true", "false"):
        raise UsageError("admin is true or false", accessKey=name)
    custom = [
        _entry(f"{kind}:{resource.strip()}", perm, name)
        for member, kind in (("topicPerms", "Topic"), ("groupPerms", "Group"))
        for resource, _, perm in (line.partition("=") for line in account.get(member, []))
    ]
    default = [
        _entry(f"{kind}:*", perm, name)
        for member, kind in (("defaultTopicPerm", "Topic"), ("defaultGroupPerm", "Group"))
        if (perm := _text(account, member))
    ]
    policies = (PolicyInfo("Custom", tuple(custom)), PolicyInfo("Default", tuple(default)))
    user_type = "Super" if admin == "true" else "Normal"
    return PlainUser(UserInfo(name, secret, user_type), tuple(policy for policy in policies if policy.entries))


def _entry(resource: str, perm: str, name: str) -> EntryInfo:
    rule = _PERMS.get(perm.strip())
    if rule is None:
        raise UsageError(f"a permission is one of {', '.join(_PERMS)}", accessKey=name, resource=resource)
    return EntryInfo(resource, rule[0], None, rule[1])


def _network(address: str) -> str:
    """``10.1.*.*`` as ``10.1.0.0/16``. Raises UsageError for ranges and lists, which are no networks."""
    parts = address.split(".")
    fixed = [part for part in parts if part != "*"]
    if address == "*" or len(parts) != 4 or parts[: len(fixed)] != fixed or not all(map(str.isdigit, fixed)):
        raise UsageError("a white address is a whole one, or one that ends with .*", address=address[:100])
    return address if len(fixed) == 4 else f"{'.'.join([*fixed, *['0'] * (4 - len(fixed))])}/{8 * len(fixed)}"


def _text(account: Account, key: str) -> str:
    value = account.get(key, "")
    return value if isinstance(value, str) else ""
