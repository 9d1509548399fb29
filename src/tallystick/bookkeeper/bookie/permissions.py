"""What a peer of a bookie may do, by who it is: five permissions, from a file of ours.

::

    default = ["read", "append", "recover"]     # of those that are not named below; this is the default, too
    anonymous = ["read"]                        # of those that show no key, where allowAnonymous lets them in
    [users]
    "bookkeeper-auditor" = ["read", "repair"]
    [certificates]                              # by the common name of the subject
    "backup.example" = ["read"]

The file is read again when it has changed; one that cannot be read lets nobody in who is not known already.
"""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tallystick.errors import UsageError


class Permission(enum.Flag):
    """What a request needs; ADMIN has all others in it."""

    NONE = 0
    READ = enum.auto()  # reads without a fence, entry lists, the space of the disks
    APPEND = enum.auto()  # adds that are not of recovery, WRITE_LAC of ledgers appended to, FORCE_LEDGER
    RECOVER = enum.auto()  # a fence, adds of recovery, WRITE_LAC of others' ledgers
    REPAIR = enum.auto()  # adds of recovery, without a fence
    ADMIN = enum.auto()


ALL = Permission.READ | Permission.APPEND | Permission.RECOVER | Permission.REPAIR | Permission.ADMIN
ORIGINAL = Permission.READ | Permission.APPEND | Permission.RECOVER  # what an original client does
MAY_RECOVERY_ADD = Permission.RECOVER | Permission.REPAIR  # one of them
_NAMES = {str(permission.name).lower(): permission for permission in Permission if permission is not Permission.NONE}


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """Who a peer has shown to be: ``kind`` is "user", "certificate", or "anonymous" without a name."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


ANONYMOUS = PeerIdentity("anonymous")


@dataclass(frozen=True)
class Permissions:
    """The permissions of all identities."""

    default: Permission = ORIGINAL
    anonymous: Permission = ORIGINAL
    users: Mapping[str, Permission] = field(default_factory=lambda: MappingProxyType({}))
    certificates: Mapping[str, Permission] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, identity: PeerIdentity) -> Permission:
        """Return what an identity may do."""
        if identity.kind == "anonymous":
            return self.anonymous
        named = self.users if identity.kind == "user" else self.certificates
        return named.get(identity.name, self.default)


def parse_permissions(text: str, path: str) -> Permissions:
    """Read the text of a file. Raises UsageError, which names ``path``."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the permissions are not TOML: {error}", path=path) from error
    unknown = document.keys() - {"default", "anonymous", "users", "certificates"}
    if unknown:
        raise UsageError("the permissions have keys that nobody knows", path=path, keys=", ".join(sorted(unknown)))
    tables = {}
    for name in ("users", "certificates"):
        table = document.get(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"{name} of the permissions is a table", path=path)
        tables[name] = MappingProxyType({who: _permission(given, who, path) for who, given in table.items()})
    default, anonymous = (
        _permission(document[name], name, path) if name in document else ORIGINAL for name in ("default", "anonymous")
    )
    return Permissions(default, anonymous, tables["users"], tables["certificates"])


def _permission(given: Any, who: str, path: str) -> Permission:
    if not isinstance(given, list) or not all(isinstance(name, str) and name in _NAMES for name in given):
        raise UsageError(f"permissions are a list of {', '.join(_NAMES)}", path=path, of=who)
    permission = Permission.NONE
    for name in given:
        permission |= _NAMES[name]
    return ALL if Permission.ADMIN in permission else permission
