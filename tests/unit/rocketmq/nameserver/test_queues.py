from __future__ import annotations

import random

from tallystick.codec.steps import Steps, finished
from tallystick.rocketmq.nameserver.queues import STEP_TOPICS, BrokerSet, TopicQueues
from tallystick.rocketmq.wire.values import MAX_QUEUES, QueueRoute

MANY = [f"T{number}" for number in range(3 * STEP_TOPICS)]


def a_set(name: str, cluster: str = "c", host: str = "h") -> BrokerSet:
    return BrokerSet(cluster, name, host, {}, False)


def queue(name: str, perm: int = 6) -> QueueRoute:
    return QueueRoute(name, 4, 4, perm, 0)


def test_a_set_that_goes_is_gone_at_once_and_swept_later() -> None:
    """A quarter of a million topics were a turn of the loop of a quarter of a second, whenever a connection ended."""
    later: list[Steps[None]] = []
    queues = TopicQueues(later.append)
    gone, other, stays = a_set("b"), a_set("c"), a_set("d")
    for topic in MANY:
        for brokers in (gone, other):
            queues.put(topic, brokers, queue(brokers.name))
    queues.put("T0", stays, queue("d"))
    for brokers in (gone, other):
        queues.drop_all(brokers)
    assert (finished(queues.names(None)), list(queues.of("T0")), queues.of("T1")) == (["T0"], [stays], {})
    assert (len(queues), queues.topic_count, len(later)) == (1, len(MANY), 1)
    again = a_set("b")
    queues.put("T1", again, queue("b"))
    assert len(list(later[0])) == 2 * len(MANY) // STEP_TOPICS
    assert (finished(queues.names(None)), queues.topic_count) == (["T0", "T1"], 2)
    queues.drop_all(again)
    finished(later[1])
    assert queues.topic_count == 1


def test_thousands_of_small_sets_that_go_are_swept_in_steps() -> None:
    later: list[Steps[None]] = []
    queues = TopicQueues(later.append)
    for number in range(100):
        brokers = a_set(f"b{number}")
        for topic in MANY[:100]:
            queues.put(topic, brokers, queue(brokers.name))
        queues.drop_all(brokers)
    [sweep] = later
    assert len(list(sweep)) == 100 * 100 // STEP_TOPICS
    assert queues.topic_count == 0


class Asked(BrokerSet):
    """Counts how often sets are looked for."""

    times = 0

    def __hash__(self) -> int:
        Asked.times += 1
        return id(self)


def test_sets_that_went_are_asked_for_room_in_their_own_topics_alone_and_once() -> None:
    later: list[Steps[None]] = []
    queues = TopicQueues(later.append)
    for number in range(1000):
        brokers = Asked("c", f"b{number}", "h", {}, False)
        for topic in (f"T{number}", "shared"):
            queues.put(topic, brokers, QueueRoute(brokers.name, 60, 60, 6, 0))
        queues.drop_all(brokers)
    stays, Asked.times = a_set("stays"), 0
    for topic in MANY:
        assert queues.take(topic, stays, queue("stays"), changed=True)
    assert Asked.times == 0
    much = QueueRoute("stays", MAX_QUEUES, MAX_QUEUES, 6, 0)
    assert queues.is_wide("shared") and queues.take("shared", stays, much, changed=True)
    assert 0 < Asked.times < 5000
    assert queues.take("T1", stays, much, changed=True) and queues.of("T1") == {stays: much}
    assert len(list(later[0])) == 2000 // STEP_TOPICS, "whoever went from its topic before is passed over"
    assert (len(queues), queues.topic_count) == (len(MANY) + 1, len(MANY) + 1)
    assert queues._queues["shared"] == MAX_QUEUES


def test_permissions_change_in_steps_also_of_topics_that_go_meanwhile() -> None:
    queues, brokers = TopicQueues(finished), a_set("b")
    for topic in MANY:
        queues.put(topic, brokers, queue("b"))
    steps = queues.set_writeable(brokers, False)
    next(steps)
    queues.drop(MANY[-1], brokers)
    assert finished(steps) == len(MANY)
    assert {queues.of(topic)[brokers].perm for topic in MANY[:-1]} == {4}
    assert finished(queues.set_writeable(brokers, True)) == len(MANY) - 1
    assert queues.of("T0")[brokers].perm == 6


def test_names_are_of_clusters_and_listed_in_steps() -> None:
    queues, ours, others = TopicQueues(finished), a_set("b"), a_set("x", "other")
    for topic in MANY:
        queues.put(topic, ours, queue("b"))
    queues.put("X", others, queue("x"))
    steps = queues.names("c")
    next(steps)
    queues.put("new", ours, queue("b"))
    queues.drop(MANY[-1], ours)
    assert finished(steps) == MANY[:-1]
    assert finished(queues.names("other")) == ["X"]


def test_what_is_counted_is_what_there_is() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng, queues = random.Random(seed), TopicQueues(finished)
    sets = [a_set(f"b{number}", host=f"h{number % 2}") for number in range(4)]
    for _ in range(500):
        brokers = rng.choice(sets)
        topic = f"T{rng.randrange(6)}"
        if rng.random() < 0.05:
            queues.drop_all(brokers)
            sets[sets.index(brokers)] = a_set(brokers.name, host=brokers.host)
        elif rng.random() < 0.1:
            queues.move(brokers, f"h{rng.randrange(3)}")
        elif topic in brokers.topics and rng.random() < 0.5:
            queues.drop(topic, brokers)
        else:
            queues.put(topic, brokers, queue(brokers.name))
        counts = {queue: sum(one.count for one in queues._topics.get(queue, {}).values()) for queue in queues._topics}
        assert dict(queues._queues) == {topic: count for topic, count in counts.items() if count}
        by_host = {host: sum(len(one.topics) for one in sets if one.host == host) for host in ("h0", "h1", "h2")}
        assert dict(queues._by_host) == {host: count for host, count in by_host.items() if count}
        assert len(queues) == sum(by_host.values())
        assert set(finished(queues.names(None))) == {topic for one in sets for topic in one.topics}
