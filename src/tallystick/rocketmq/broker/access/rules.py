"""The policies of a user, and the decision on one request (``AclAuthorizationHandler``, ``Resource``, ``PolicyEntry``).

Of all entries that match the resource, one of the actions and the address, the most exact one decides: a kind of
resource before any kind, a whole name before a prefix, a longer prefix before a shorter one, a prefix before any name.
A policy has one entry a resource, so no two are as exact. The ``Default`` policy counts where no entry of ``Custom``
matches. No match at all is a refusal.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tallystick.errors import UsageError
from tallystick.rocketmq.wire.access import EntryInfo, PolicyInfo
from tallystick.rocketmq.wire.values import RETRY_PREFIX

MAX_NAME_CHARS = 255
MAX_ENTRIES = 1000  # of one user
MAX_SOURCES = 64  # addresses of one entry
MAX_USER_SOURCES = 4096  # of all entries of one user: 64,000 take a third of a second to read

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Kind(enum.Enum):
    """Of a resource."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(enum.Enum):
    """What is done with a resource. ALL stands in policies alone."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Pattern(enum.IntEnum):
    """How a resource's name is meant. The most exact one has the lowest number."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


_KINDS = {kind.value.lower(): kind for kind in Kind}
_ACTIONS = {action.value.lower(): action for action in Action}
_DECISIONS = {"allow": True, "deny": False}
_POLICIES = {"custom": "Custom", "default": "Default"}


@dataclass(frozen=True)
class Resource:
    """What an entry is about. ``name`` is empty for any name."""

    kind: Kind
    name: str
    pattern: Pattern

    def __str__(self) -> str:
        if self.kind is Kind.ANY:
            return "*"
        return f"{self.kind.value}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"

    def matches(self, need: Need) -> bool:
        if self.kind is Kind.ANY:
            return True
        if self.kind is not need.kind:
            return False
        if self.pattern is Pattern.LITERAL:
            return need.name == self.name
        return need.name.startswith(self.name)


@dataclass(frozen=True)
class Need:
    """What a request does: one of these actions with one resource must be allowed."""

    kind: Kind
    name: str
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Entry:
    """One entry of a policy. No ``sources`` are all addresses."""

    resource: Resource
    actions: frozenset[Action]
    sources: tuple[Network, ...]
    allows: bool
    info: EntryInfo  # in the canonical spelling

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The lowest one decides."""
        resource = self.resource
        return resource.kind is Kind.ANY, resource.pattern, -len(resource.name)

    def matches(self, need: Need, host: str) -> bool:
        return (
            self.resource.matches(need)
            and (Action.ALL in self.actions or any(action in self.actions for action in need.actions))
            and self._is_from(host)
        )

    def _is_from(self, host: str) -> bool:
        if not self.sources:
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:  # nobody knows from where it comes: what denies matches, what allows does not
            return not self.allows
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self.sources)


@dataclass(frozen=True)
class Policies:
    """All entries of one user."""

    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def allows(self, need: Need, host: str) -> bool:
        """Returns False also if no entry matches."""
        for entries in (self.custom, self.default):
            matching = [entry for entry in entries if entry.matches(need, host)]
            if matching:
                return min(matching, key=lambda entry: entry.rank).allows
        return False

    def updated(self, others: Policies) -> Policies:
        """Returns the policies with those entries put in, each in the place of one with the same resource. Raises
        UsageError for too many."""
        return _bounded(Policies(_put(self.custom, others.custom), _put(self.default, others.default)))

    def without(self, policy_type: str, resource: Resource) -> Policies:
        """Returns the policies without the entry of this resource."""
        custom, default = (
            tuple(entry for entry in entries if entry.resource != resource or name != policy_type)
            for name, entries in (("Custom", self.custom), ("Default", self.default))
        )
        return Policies(custom, default)

    def infos(self, resource_filter: str = "") -> tuple[PolicyInfo, ...]:
        """Returns what bodies and files have, with the entries whose resource contains ``resource_filter``."""
        policies = (
            (name, tuple(entry.info for entry in entries if resource_filter in str(entry.resource)))
            for name, entries in (("Custom", self.custom), ("Default", self.default))
        )
        return tuple(PolicyInfo(name, infos) for name, infos in policies if infos)

    @property
    def source_count(self) -> int:
        """How many addresses all entries have."""
        return sum(len(entry.sources) for entry in (*self.custom, *self.default))

    def __len__(self) -> int:
        return len(self.custom) + len(self.default)


def read_policies(infos: Sequence[PolicyInfo] | None) -> Policies:
    """Read what a body or a file has. Raises UsageError for what is empty, too much or unknown: an unknown action
    would else be one less that is denied."""
    if not infos:
        raise UsageError("The policies is empty.")
    policies = Policies()
    for info in infos:
        name = read_policy_type(info.policy_type)
        if not info.entries:
            raise UsageError("The policy entries is empty.")
        if len(info.entries) > MAX_ENTRIES:
            raise UsageError(f"A user has at most {MAX_ENTRIES} entries.")
        _check_sources(sum(len(entry.source_ips or ()) for entry in info.entries))  # before they are read
        entries = tuple(map(_read_entry, info.entries))
        policies = policies.updated(Policies(entries, ()) if name == "Custom" else Policies((), entries))
    return policies


def read_policy_type(name: str | None) -> str:
    """Returns Custom, also if none is given, or Default. Raises UsageError."""
    policy_type = _POLICIES.get((name or "Custom").lower())
    if policy_type is None:
        raise UsageError("The policy type is Custom or Default.")
    return policy_type


def read_resource(text: str | None) -> Resource:
    """Read ``Topic:name``, ``Group:prefix*``, ``Cluster:*`` or ``*``. Raises UsageError."""
    if text == "*":
        return Resource(Kind.ANY, "", Pattern.ANY)
    kind_name, _, name = (text or "").partition(":")
    kind = _KINDS.get(kind_name.lower())
    if kind is None or kind is Kind.ANY:
        raise UsageError("The resource type is null.")
    if not name or len(name) > MAX_NAME_CHARS:
        raise UsageError(f"The resource has a name of at most {MAX_NAME_CHARS} characters, or *.")
    if name == "*":
        return Resource(kind, "", Pattern.ANY)
    if name.endswith("*"):
        return Resource(kind, name.partition("*")[0], Pattern.PREFIXED)
    return Resource(kind, name, Pattern.LITERAL)


def topic_need(topic: str, *actions: Action) -> Need:
    """Returns what a request to a topic needs. The retry topic of a group belongs to the group."""
    if topic.startswith(RETRY_PREFIX):
        return Need(Kind.GROUP, topic.removeprefix(RETRY_PREFIX), actions)
    return Need(Kind.TOPIC, topic, actions)


def group_need(group: str, *actions: Action) -> Need:
    return Need(Kind.GROUP, group.removeprefix(RETRY_PREFIX), actions)


def _read_entry(info: EntryInfo) -> Entry:
    if info.resource is None:
        raise UsageError("The resource is null.")
    resource = read_resource(info.resource)
    if not info.actions:
        raise UsageError("The actions is empty.")
    actions = [_ACTIONS.get(name.lower()) for name in info.actions[: len(_ACTIONS) + 1]]
    known_actions = [action for action in actions if action is not None]
    if len(known_actions) < len(info.actions):
        raise UsageError(f"The actions are of {', '.join(action.value for action in Action)}.")
    allows = _DECISIONS.get((info.decision or "").lower())
    if allows is None:
        raise UsageError("The decision is null or illegal.")
    sources = _read_sources(info.source_ips or ())
    canonical = EntryInfo(
        str(resource),
        tuple(action.value for action in known_actions),
        info.source_ips or None,
        "Allow" if allows else "Deny",
    )
    return Entry(resource, frozenset(known_actions), sources, allows, canonical)


def _read_sources(texts: Sequence[str]) -> tuple[Network, ...]:
    if len(texts) > MAX_SOURCES:
        raise UsageError(f"An entry has at most {MAX_SOURCES} source ips.")
    try:
        return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts)
    except ValueError:
        raise UsageError("The source ip is invalid.") from None


def _put(entries: Iterable[Entry], others: Iterable[Entry]) -> tuple[Entry, ...]:
    by_resource = {entry.resource: entry for entry in entries}
    return tuple({**by_resource, **{entry.resource: entry for entry in others}}.values())


def _bounded(policies: Policies) -> Policies:
    if len(policies) > MAX_ENTRIES:
        raise UsageError(f"A user has at most {MAX_ENTRIES} entries.")
    _check_sources(policies.source_count)
    return policies


def _check_sources(count: int) -> None:
    if count > MAX_USER_SOURCES:
        raise UsageError(f"The entries of a user have at most {MAX_USER_SOURCES} source ips together.")
