"""Who is in which group, and who is told when that changes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tallystick.rocketmq.broker import clients as core
from tallystick.rocketmq.broker.clients import BROADCASTING, EXPIRE_S, MAX_GROUPS, ClientsCore
from tallystick.rocketmq.wire.values import ConsumerGroup, Heartbeat, Language, ProducerGroup, Subscription


def beat(
    client: str = "c",
    *,
    topics: tuple[str, ...] = ("T",),
    model: str = "CLUSTERING",
    fingerprint: int = 0,
    bare: bool = False,
    version: int = 1,
) -> Heartbeat:
    subscriptions = tuple(Subscription(topic, version=version) for topic in topics)
    group = ConsumerGroup("g", message_model=model, subscriptions=subscriptions)
    return Heartbeat(client, (ProducerGroup("p"),), (group,), fingerprint, bare)


def hear(clients: ClientsCore[str], link: str, heartbeat: Heartbeat, now: float = 0.0) -> list[str]:
    return clients.heartbeat_received(link, heartbeat, heartbeat.consumers, Language.JAVA, 513, now)


def test_a_new_member_is_told_to_all_members_and_a_known_one_to_nobody() -> None:
    clients: ClientsCore[str] = ClientsCore()
    assert hear(clients, "one", beat()) == ["g"]
    assert hear(clients, "one", beat()) == []
    assert hear(clients, "two", beat("d")) == ["g"]


def test_other_topics_are_a_change_other_tags_are_not() -> None:
    clients: ClientsCore[str] = ClientsCore()
    hear(clients, "one", beat())
    assert hear(clients, "one", beat(version=2)) == []
    known = clients.consumers("g")
    assert known is not None
    assert known.subscriptions["T"].version == 2
    assert hear(clients, "one", beat(version=1)) == []
    assert known.subscriptions["T"].version == 2
    assert hear(clients, "one", beat(topics=("T", "U"))) == ["g"]
    assert hear(clients, "one", beat(topics=("U",))) == ["g"]
    assert list(known.subscriptions) == ["U"]


def test_broadcast_groups_share_nothing_so_nobody_is_told() -> None:
    clients: ClientsCore[str] = ClientsCore()
    assert hear(clients, "one", beat(model=BROADCASTING)) == []
    assert clients.consumers("g") is not None


def test_who_leaves_or_is_cut_off_is_told_to_the_rest() -> None:
    clients: ClientsCore[str] = ClientsCore()
    for link in ("one", "two", "three"):
        hear(clients, link, beat(link))
    assert clients.client_left("one", "p", "g") == ["g"]
    assert list(clients.producers("p") or ()) == ["two", "three"]
    assert clients.client_left("one", None, "no such group") == []
    assert list(clients.closed("two")) == [["g"], []]
    assert list(clients.closed("two")) == []
    assert list(clients.closed("three")) == [[], []]
    assert clients.consumers("g") is None
    assert clients.producers("p") is None
    assert not clients._groups
    assert not clients._fingerprints


def test_a_link_costs_what_it_is_in_and_is_in_so_many_groups_at_most() -> None:
    clients: ClientsCore[str] = ClientsCore()
    for number in range(3):
        names = [f"p{number}-{one}" for one in range(MAX_GROUPS - 1)]
        many = Heartbeat("c", tuple(map(ProducerGroup, names)), tuple(ConsumerGroup(f"g{name}") for name in names))
        clients.wants_subscriptions(many)
        clients.heartbeat_received("stranger", many, many.consumers, Language.JAVA, 1, 0.0)
    assert clients.group_count("stranger") == 2 * MAX_GROUPS
    assert len(clients.producer_groups) == len(clients.consumer_groups) == len(clients._fingerprints) == MAX_GROUPS
    assert len(list(clients.closed("stranger"))) == 2 * MAX_GROUPS, "a step each"
    assert not clients.producer_groups and not clients.consumer_groups and not clients._fingerprints
    assert not (clients._groups or clients._producer_groups or clients._last_heartbeats)


def test_groups_that_may_not_consume_leave_nothing() -> None:
    clients: ClientsCore[str] = ClientsCore()
    asked = beat(fingerprint=5)
    clients.wants_subscriptions(asked)
    clients.heartbeat_received("one", asked, (), Language.JAVA, 1, 0.0)
    assert not clients._fingerprints


def test_a_group_that_is_named_no_more_is_left_and_the_link_goes_on() -> None:
    clients: ClientsCore[str] = ClientsCore()
    for link in ("one", "two"):
        hear(clients, link, beat(link), 0.0)
    hear(clients, "two", beat("two"), EXPIRE_S)
    other = Heartbeat("one", (ProducerGroup("other"),), ())
    assert clients.heartbeat_received("one", other, (), Language.JAVA, 1, EXPIRE_S) == []
    assert clients.heartbeat_received("one", other, (), Language.JAVA, 1, EXPIRE_S + 1) == ["g"]
    assert list(clients.producers("p") or ()) == ["two"] and list(clients.producers("other") or ()) == ["one"]
    assert list(clients.expired(EXPIRE_S + 2)) == []


def test_silent_clients_expire() -> None:
    clients: ClientsCore[str] = ClientsCore()
    hear(clients, "silent", beat("a"), 0.0)
    hear(clients, "alive", beat("b"), EXPIRE_S)
    assert list(clients.expired(EXPIRE_S)) == []
    assert list(clients.expired(EXPIRE_S + 1)) == ["silent"]


def test_who_is_heard_before_its_turn_comes_is_not_silent() -> None:
    clients: ClientsCore[str] = ClientsCore()
    for link in "abcd":
        hear(clients, link, beat(link), 0.0)
    silent = clients.expired(EXPIRE_S + 1)
    assert next(silent) == "a"
    hear(clients, "b", beat("b"), EXPIRE_S + 1)
    list(clients.closed("c"))
    assert list(silent) == ["d"]


def test_heartbeats_without_subscriptions_keep_those_that_are_known() -> None:
    clients: ClientsCore[str] = ClientsCore()
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
    assert ClientsCore[str]().wants_subscriptions(beat(fingerprint=7, bare=True, topics=()))


# -- what connections are charged with --------------------------------------------------------------------------------


def charged(clients: ClientsCore[str], charges: Counter[str]) -> dict[str, int]:
    """What each connection is charged with, after what was taken before."""
    charges.update(clients.take_charges())
    return {link: size for link, size in charges.items() if size}


def test_the_subscriptions_of_every_heartbeat_count_and_not_those_of_the_last_one_alone() -> None:
    """One connection with another group and 14,500 subscriptions in each of 1,500 heartbeats had 2.5 GB."""
    clients, charges, sizes = ClientsCore[str](), Counter[str](), [0]
    topics = tuple(Subscription(f"T{number}") for number in range(100))
    for number in range(3):
        many = Heartbeat("c", (), (ConsumerGroup(f"g{number}", subscriptions=topics),))
        hear(clients, "stranger", many)
        sizes.append(charged(clients, charges)["stranger"])
        hear(clients, "stranger", many)
        assert charged(clients, charges)["stranger"] == sizes[-1]
    assert sizes[1] > 100 * 256
    assert [after - before for before, after in pairwise(sizes)] == [sizes[1]] * 3
    clients.client_left("stranger", None, "g1")
    assert charged(clients, charges)["stranger"] == sizes[2]
    assert len(list(clients.closed("stranger"))) == 2 * 2, "steps"
    assert charged(clients, charges) == {}


def test_nobody_is_charged_with_many_subscriptions_that_another_left_behind() -> None:
    clients, charges = ClientsCore[str](), Counter[str]()
    hear(clients, "member", beat())
    own = charged(clients, charges)["member"]
    topics = tuple(f"topic-{number}" for number in range(1_000))
    hear(clients, "stranger", beat(topics=topics))
    list(clients.closed("stranger"))
    assert charged(clients, charges)["member"] <= own
    group = clients.consumers("g")
    assert group is not None and not group.subscriptions and clients.wants_subscriptions(beat(bare=True))
    hear(clients, "member", beat())
    assert charged(clients, charges) == {"member": own} and list(group.subscriptions) == ["T"]


def test_many_subscriptions_stay_while_a_member_is_there_that_names_them_itself() -> None:
    clients, charges = ClientsCore[str](), Counter[str]()
    topics = tuple(f"topic-{number}" for number in range(1_000))
    hear(clients, "small", beat())
    for link in ("one", "two"):
        hear(clients, link, beat(topics=topics))
    hear(clients, "two", beat(topics=topics, bare=True))
    list(clients.closed("one"))
    group = clients.consumers("g")
    assert group is not None and len(group.subscriptions) == 1_000
    sizes = charged(clients, charges)
    assert sizes["two"] > 64 * 1024 > sizes["small"]


def test_subscriptions_are_charged_to_who_brought_them_and_when_that_leaves_to_the_oldest_member() -> None:
    clients, charges = ClientsCore[str](), Counter[str]()
    for link in ("one", "two", "three"):
        hear(clients, link, beat())
    first = charged(clients, charges)
    assert first["one"] > first["two"] == first["three"]
    hear(clients, "three", beat(version=2))
    assert charged(clients, charges) == {"one": first["two"], "two": first["two"], "three": first["one"]}
    list(clients.closed("three"))
    assert charged(clients, charges) == {"one": first["one"], "two": first["two"]}


LINKS, GROUPS = st.sampled_from("ab"), st.sampled_from(["g", "group"])
BEATS = st.builds(
    lambda client, producers, consumers: Heartbeat(client, tuple(map(ProducerGroup, producers)), tuple(consumers)),
    st.sampled_from(["c", "client"]),
    st.lists(GROUPS, max_size=2),
    st.lists(
        st.builds(
            ConsumerGroup,
            GROUPS,
            subscriptions=st.lists(
                st.builds(
                    Subscription,
                    st.sampled_from(["T", "topic"]),
                    tags=st.sampled_from([(), ("tag",)]),
                    version=st.integers(0, 2),
                ),
                max_size=2,
            ).map(tuple),
        ),
        max_size=2,
    ),
)


@given(st.lists(st.tuples(LINKS, st.one_of(BEATS, st.tuples(GROUPS, GROUPS), st.none()), st.integers(0, 100))))
def test_charges_are_what_the_tables_have(events: list[tuple[str, Heartbeat | tuple[str, str] | None, int]]) -> None:
    """A heartbeat, a farewell or the end of a connection: the sum of all charges is what is there."""
    clients, charges, now = ClientsCore[str](), Counter[str](), 0
    for link, event, seconds in events:
        now += seconds
        if event is None:
            list(clients.closed(link))
        elif isinstance(event, tuple):
            clients.client_left(link, *event)
        else:
            hear(clients, link, event, now)
        expected = Counter[str]()
        for name, members in clients.producer_groups.items():
            expected.update({each: core._member_bytes(name, member) for each, member in members.items()})
        for name, group in clients.consumer_groups.items():
            expected.update({each: core._member_bytes(name, member) for each, member in group.members.items()})
            assert group.subscriber is None or group.subscriber in group.members
            if group.subscriber is not None:
                expected[group.subscriber] += sum(map(core._subscription_bytes, group.subscriptions.values()))
            assert group.subscriber is not None or not group.subscriptions
        assert charged(clients, charges) == {each: size for each, size in expected.items() if size}
