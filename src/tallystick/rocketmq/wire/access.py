"""Users and what they may do, as requests have them in their bodies (``UserInfo``, ``AclInfo``)."""

from __future__ import annotations

import msgspec


class UserInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A user. What is None is not given, or not to be changed."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None  # Super or Normal
    user_status: str | None = None  # enable or disable


class EntryInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What is allowed, or denied, with one resource: ``Topic:name``, ``Group:prefix*``, ``Cluster:*``, ``*``."""

    resource: str | None = None
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None  # from where; None and none are everywhere
    decision: str | None = None  # Allow or Deny


class PolicyInfo(msgspec.Struct, frozen=True, rename="camel"):
    """Entries of one kind."""

    policy_type: str | None = None  # Custom or Default: the latter counts where no entry of the former matches
    entries: tuple[EntryInfo, ...] | None = None


class AclInfo(msgspec.Struct, frozen=True, rename="camel"):
    """All policies of one subject, ``User:name``."""

    subject: str | None = None
    policies: tuple[PolicyInfo, ...] | None = None


class StoredUser(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A user in our file, and in the copy of a slave. With two passwords both are right: the newer one stands first."""

    username: str
    passwords: tuple[str, ...]
    user_type: str
    user_status: str
    policies: tuple[PolicyInfo, ...] = ()


class UserTable(msgspec.Struct, frozen=True):
    """tallyAccess.json: all users by name."""

    users: dict[str, StoredUser]


class PeerRow(msgspec.Struct, frozen=True, rename="camel"):
    """How many requests of one host came by one identity, "anonymous" or "user ann", and how."""

    host: str
    identity: str
    came: int = 0
    old_secret: int = 0  # of those that came: signed with the older one of two secrets
    refused: int = 0


class AuthenticationInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The response to GET_AUTHENTICATION, ours alone: whom a broker asks for a key, and who came since it started."""

    is_asked: bool  # authenticationEnabled
    is_required: bool  # and requests without a key do not pass
    tls: bool
    peers: tuple[PeerRow, ...] = ()
