"""Who is in which group, and who is told when that changes."""

from __future__ import annotations

from tallystick.rocketmq.broker.clients import BROADCASTING, EXPIRE_S, Changed, Clients
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language, ProducerGroup, Subscription


def beat(
    client: str = "c", *, topics: tuple[str, ...] = ("T",), model: str = "CLUSTERING", fingerprint: int = 0,
    bare: bool = False, version: int = 1,
) -> Heartbeat:  # fmt: skip
    subscriptions = tuple(Subscription(topic, version=version) for topic in topics)
    group = ConsumerGroup("g", message_model=model, subscriptions=subscriptions)
    return Heartbeat(client, (ProducerGroup("p"),), (group,), fingerprint, bare)


def hear(clients: Clients[str], link: str, heartbeat: Heartbeat, now: float = 0.0) -> list[Changed[str]]:
    return clients.heard(link, heartbeat, heartbeat.consumers, Language.JAVA, 513, now)


def test_a_new_member_is_told_to_all_members_and_a_known_one_to_nobody() -> None:
    clients: Clients[str] = Clients()
    assert hear(clients, "one", beat()) == [Changed("g", ("one",))]
    assert hear(clients, "one", beat()) == []
    assert hear(clients, "two", beat("d")) == [Changed("g", ("one", "two"))]


def test_other_topics_are_a_change_other_tags_are_not() -> None:
    clients: Clients[str] = Clients()
    hear(clients, "one", beat())
    assert hear(clients, "one", beat(version=2)) == []
    known = clients.consumers("g")
    assert known is not None
    assert known.subscriptions["T"].version == 2
    assert hear(clients, "one", beat(version=1)) == []
    assert known.subscriptions["T"].version == 2
    assert hear(clients, "one", beat(topics=("T", "U"))) == [Changed("g", ("one",))]
    assert hear(clients, "one", beat(topics=("U",))) == [Changed("g", ("one",))]
    assert list(known.subscriptions) == ["U"]


def test_broadcast_groups_share_nothing_so_nobody_is_told() -> None:
    clients: Clients[str] = Clients()
    assert hear(clients, "one", beat(model=BROADCASTING)) == []
    assert clients.consumers("g") is not None


def test_who_leaves_or_is_cut_off_is_told_to_the_rest() -> None:
    clients: Clients[str] = Clients()
    for link in ("one", "two", "three"):
        hear(clients, link, beat(link))
    assert clients.left("one", "p", "g") == [Changed("g", ("two", "three"))]
    assert list(clients.producers("p") or ()) == ["two", "three"]
    assert clients.left("one", None, "no such group") == []
    assert clients.closed("two") == [Changed("g", ("three",))]
    assert clients.closed("two") == []
    assert clients.closed("three") == []
    assert clients.consumers("g") is None
    assert clients.producers("p") is None
    assert not clients._groups
    assert not clients._fingerprints


def test_silent_clients_expire() -> None:
    clients: Clients[str] = Clients()
    hear(clients, "silent", beat("a"), 0.0)
    hear(clients, "alive", beat("b"), EXPIRE_S)
    assert clients.expired(EXPIRE_S) == []
    assert clients.expired(EXPIRE_S + 1) == ["silent"]


def test_heartbeats_without_subscriptions_keep_those_that_are_known() -> None:
    clients: Clients[str] = Clients()
    first = beat(fingerprint=7)
    assert not clients.wants_subscriptions(first)
    hear(clients, "one", first)
    bare = beat(fingerprint=7, bare=True, topics=())
    assert not clients.wants_subscriptions(bare)
    hear(clients, "one", bare)
    known = clients.consumers("g")
    assert known is not None
    assert list(known.subscriptions) == ["T"]
    assert clients.wants_subscriptions(beat(fingerprint=8))


def test_a_broker_that_restarted_asks_for_the_subscriptions() -> None:
    """It knows none, and the client believes that it does: without them every pull would be refused."""
    assert Clients[str]().wants_subscriptions(beat(fingerprint=7, bare=True, topics=()))
