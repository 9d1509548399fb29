"""Who produces and who consumes here, by their heartbeats (``ConsumerManager``, ``ProducerManager``): a core.

A member of a group is a connection. It leaves when the connection ends, when its client says so, or when no heartbeat
named the group for 120 s; a connection without any heartbeat for so long is closed. One connection is a member of
``MAX_GROUPS`` groups at most: an event costs what its connection has, not what the broker has. Its memory is charged to
connections: each member to its own, a group's subscriptions to the one that brought them last. When that leaves, they
are charged to a member that named as much itself, or if they are few to the oldest one; else they are forgotten until a
heartbeat brings some: nobody pays for what a stranger left behind.

When the members or the topics of a consumer group change, its members must share its queues anew. Each event returns
the groups whose members are to be told, before the response is sent: a client may hear of the change first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language, Subscription

EXPIRE_S = 120.0
MAX_GROUPS = 2_000  # that one connection produces for, and likewise consumes for: real clients have some tens
BROADCASTING = "BROADCASTING"

_STEP_SUBSCRIPTIONS = 50  # to forget them takes as long as to forget a group
_MEMBER_BYTES = 512  # that a member of a group takes, with the group where it has no other
_SUBSCRIPTION_BYTES = 256
_STRING_BYTES = 64  # that a tag takes, or its code
_CHAR_BYTES = 4  # at most
_FEW_BYTES = 64 * 1024  # of subscriptions: with some tags for each of a hundred topics
_COMPARED = 64  # members

AnyLink = TypeVar("AnyLink", bound=Hashable)


@dataclass
class GroupMember:
    """One client of a group, by one connection."""

    client_id: str
    language: Language
    version: int
    heard_at: float
    subscription_bytes: int = 0  # of what it named itself


@dataclass
class Consumers(Generic[AnyLink]):
    """A consumer group with at least one member. ``subscriptions`` are by topic.

    ``change`` is the number of the last change of its members' ids, among those of all groups.
    """

    consume_type: str
    message_model: str
    consume_from: str
    members: dict[AnyLink, GroupMember] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    subscription_bytes: int = 0  # charged to ``subscriber``
    subscriber: AnyLink | None = None
    change: int = 0


class ClientsCore(Generic[AnyLink]):
    """The members of all groups. ``now`` is an argument; events return the groups that changed."""

    def __init__(self) -> None:
        self._consumers: dict[str, Consumers[AnyLink]] = {}
        self._producers: dict[str, dict[AnyLink, GroupMember]] = {}
        self._groups: dict[AnyLink, dict[str, None]] = {}  # that a link is a consumer of
        self._producer_groups: dict[AnyLink, dict[str, None]] = {}  # that a link is a producer of
        self._last_heartbeats: dict[AnyLink, float] = {}  # when its last heartbeat came
        self._charges: dict[AnyLink, int] = {}  # since they were taken, in bytes
        self._changes = 0  # of members' ids
        self._fingerprints: dict[str, int] = {}  # of the last heartbeat for a group that is there

    @property
    def consumer_groups(self) -> Mapping[str, Consumers[AnyLink]]:
        return self._consumers

    @property
    def producer_groups(self) -> Mapping[str, Mapping[AnyLink, GroupMember]]:
        return self._producers

    def consumers(self, group: str) -> Consumers[AnyLink] | None:
        """Returns the members of a consumer group, or None if it has none."""
        return self._consumers.get(group)

    def producers(self, group: str) -> Mapping[AnyLink, GroupMember] | None:
        return self._producers.get(group)

    def heartbeat_received(
        self,
        link: AnyLink,
        beat: Heartbeat,
        groups: Iterable[ConsumerGroup],
        language: Language,
        version: int,
        now: float,
    ) -> list[str]:
        """A heartbeat came; ``groups`` are those of its consumer groups that may consume."""
        changes = []
        self._last_heartbeats[link] = now
        consumer_names = self._groups.setdefault(link, {})
        for group in groups:
            if group.name not in consumer_names and len(consumer_names) >= MAX_GROUPS:
                continue
            consumers = self._consumers.get(group.name)
            if consumers is None:
                consumers = self._consumers[group.name] = Consumers("", "", "")
            consumers.consume_type, consumers.message_model = group.consume_type, group.message_model
            consumers.consume_from = group.consume_from
            member = consumers.members.get(link)
            has_changed = member is None
            if member is None or member.client_id != beat.client_id:
                self._number(consumers)
            consumers.members[link] = self._member(link, group.name, member, beat.client_id, language, version, now)
            consumer_names[group.name] = None
            self._fingerprints[group.name] = beat.fingerprint
            if not beat.without_subscriptions:
                consumers.members[link].subscription_bytes = sum(map(_subscription_bytes, group.subscriptions))
                has_changed |= self._subscribe(link, consumers, group.subscriptions)
            if has_changed:
                changes += self._changed_group(group.name)
        producer_names = self._producer_groups.setdefault(link, {})
        for producer in beat.producers:
            if producer.name in producer_names or len(producer_names) < MAX_GROUPS:
                members = self._producers.setdefault(producer.name, {})
                members[link] = self._member(
                    link, producer.name, members.get(link), beat.client_id, language, version, now
                )
                producer_names[producer.name] = None
        changes += self._drop_unnamed(link, now - EXPIRE_S)
        self._forget_idle(link)
        return changes

    def take_charges(self) -> Mapping[AnyLink, int]:
        """Returns the bytes that connections are charged with since the last call, negative where less is kept."""
        charges, self._charges = self._charges, {}
        return charges

    def _charge(self, link: AnyLink, size: int) -> None:
        self._charges[link] = self._charges.get(link, 0) + size

    def group_count(self, link: AnyLink) -> int:
        """Returns of how many groups a connection is a member."""
        return len(self._groups.get(link, ())) + len(self._producer_groups.get(link, ()))

    def _member(
        self,
        link: AnyLink,
        group: str,
        old: GroupMember | None,
        client_id: str,
        language: Language,
        version: int,
        now: float,
    ) -> GroupMember:
        """Returns what takes the place of the ``old`` member, and charges the connection with the difference."""
        member = GroupMember(client_id, language, version, now, old.subscription_bytes if old is not None else 0)
        self._charge(link, _member_bytes(group, member) - _member_bytes(group, old))
        return member

    def _subscribe(self, link: AnyLink, consumers: Consumers[AnyLink], subscriptions: Iterable[Subscription]) -> bool:
        """Take over subscriptions. Returns whether the topics changed; another choice among the messages of a topic is
        no change."""
        before = consumers.subscriptions
        consumers.subscriptions = {
            new.topic: new if (old := before.get(new.topic)) is None or new.version > old.version else old
            for new in subscriptions
        }
        has_changed = consumers.subscriptions.keys() != before.keys()
        if has_changed or any(each is not before[topic] for topic, each in consumers.subscriptions.items()):
            self._charge_subscriptions(link, consumers, sum(map(_subscription_bytes, consumers.subscriptions.values())))
        return has_changed

    def _charge_subscriptions(self, link: AnyLink | None, consumers: Consumers[AnyLink], size: int) -> None:
        """Charge ``link`` with the group's subscriptions, instead of who was charged before; nobody if it is None."""
        if consumers.subscriber is not None:
            self._charge(consumers.subscriber, -consumers.subscription_bytes)
        if link is not None:
            self._charge(link, size)
        consumers.subscriber, consumers.subscription_bytes = link, size

    def _leave_subscriptions(self, consumers: Consumers[AnyLink]) -> None:
        """Who is charged with the subscriptions has left."""
        size = consumers.subscription_bytes
        oldest = islice(consumers.members.items(), _COMPARED)
        heir = next((link for link, member in oldest if member.subscription_bytes >= size), None)
        if heir is None and size <= _FEW_BYTES:
            heir = next(iter(consumers.members), None)
        if heir is None:
            consumers.subscriptions, size = {}, 0
        self._charge_subscriptions(heir, consumers, size)

    def _drop_unnamed(self, link: AnyLink, since: float) -> list[str]:
        """Take a link out of the groups that no heartbeat of it has named since ``since``."""
        for group in [name for name in self._producer_groups[link] if self._producers[name][link].heard_at < since]:
            self._stop_producing(link, group)
        unnamed_groups = [name for name in self._groups[link] if self._consumers[name].members[link].heard_at < since]
        return [change for group in unnamed_groups for change in self._stop_consuming(link, group)]

    def wants_subscriptions(self, beat: Heartbeat) -> bool:
        """Whether the next heartbeat of the form that may leave subscriptions out must have them; call it before
        ``heartbeat_received``."""
        are_needed = False
        for group in beat.consumers:
            consumers = self._consumers.get(group.name)
            lacks_subscriptions = beat.without_subscriptions and (consumers is None or not consumers.subscriptions)
            are_needed |= (
                lacks_subscriptions or self._fingerprints.get(group.name, beat.fingerprint) != beat.fingerprint
            )
        return are_needed

    def client_left(self, link: AnyLink, producer_group: str | None, consumer_group: str | None) -> list[str]:
        """A client said that it leaves."""
        if producer_group is not None:
            self._stop_producing(link, producer_group)
        changes = []
        if consumer_group is not None and consumer_group in self._consumers:
            changes = self._stop_consuming(link, consumer_group)
        self._forget_idle(link)
        return changes

    def closed(self, link: AnyLink) -> Iterator[list[str]]:
        """A connection ended. It is forgotten in steps, one a group and ``_STEP_SUBSCRIPTIONS`` of it, as all
        connections that end in one turn may be in very many."""
        for group in list(self._groups.get(link, ())):
            subscription_count = len(self._consumers[group].subscriptions)
            yield self._stop_consuming(link, group)
            for _ in range(_STEP_SUBSCRIPTIONS, subscription_count, _STEP_SUBSCRIPTIONS):
                yield []
        for group in list(self._producer_groups.get(link, ())):
            self._stop_producing(link, group)
            yield []
        self._forget_idle(link)

    def expired(self, now: float) -> Iterator[AnyLink]:
        """Yields the connections whose clients are silent; each is to be closed, and ``closed`` follows. A client that
        is heard again before its turn comes is not among them."""
        for link in [link for link, heard_at in self._last_heartbeats.items() if now - heard_at > EXPIRE_S]:
            if now - self._last_heartbeats.get(link, now) > EXPIRE_S:
                yield link

    def _forget_idle(self, link: AnyLink) -> None:
        """Forget a link that is a member of no group."""
        if not self.group_count(link):
            for table in (self._groups, self._producer_groups, self._last_heartbeats):
                table.pop(link, None)

    def _stop_producing(self, link: AnyLink, group: str) -> None:
        members = self._producers.get(group, {})
        self._charge(link, -_member_bytes(group, members.pop(link, None)))
        self._producer_groups.get(link, {}).pop(group, None)
        if not members:
            self._producers.pop(group, None)

    def _stop_consuming(self, link: AnyLink, group: str) -> list[str]:
        consumers = self._consumers[group]
        self._charge(link, -_member_bytes(group, consumers.members.pop(link, None)))
        if consumers.subscriber == link:
            self._leave_subscriptions(consumers)
        self._number(consumers)
        self._groups.get(link, {}).pop(group, None)
        if not consumers.members:
            del self._consumers[group]
            self._fingerprints.pop(group, None)
            return []
        return self._changed_group(group)

    def _number(self, consumers: Consumers[AnyLink]) -> None:
        """The ids of a group's members change."""
        self._changes += 1
        consumers.change = self._changes

    def _changed_group(self, group: str) -> list[str]:
        consumers = self._consumers[group]
        return [] if consumers.message_model == BROADCASTING else [group]


def _member_bytes(group: str, member: GroupMember | None) -> int:
    """Returns the bytes that a member takes, 0 if there is none."""
    return 0 if member is None else _MEMBER_BYTES + _CHAR_BYTES * (len(group) + len(member.client_id))


def _subscription_bytes(subscription: Subscription) -> int:
    """Returns the bytes that a subscription takes."""
    tags, codes = subscription.tags, subscription.codes
    chars = len(subscription.topic) + len(subscription.expression) + len(subscription.kind) + sum(map(len, tags))
    return _SUBSCRIPTION_BYTES + _STRING_BYTES * (len(tags) + len(codes)) + _CHAR_BYTES * chars
