from __future__ import annotations

import pytest

from support.stores import SteppingClock
from tallystick.rocketmq.broker.role import Role, Standing
from tallystick.rocketmq.broker.topics import TopicDefaults, Topics, is_group_name, refusal_of_group, refusal_of_topic
from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.values import Perm, TopicConfig

DEFAULTS = TopicDefaults("b0", "c0")

PEER = "127.0.0.1:4711"


class Table(Topics):
    """Counts its changes."""

    def __init__(
        self,
        defaults: TopicDefaults = DEFAULTS,
        saved: TopicTable | None = None,
        *,
        most: int = 99,
        role: Role = Role.ASYNC_MASTER,
    ):
        self.clock, self.told = SteppingClock(), 0
        super().__init__(defaults, self.clock, self._count, saved, most=most, standing=Standing(role))

    def _count(self) -> None:
        self.told += 1


@pytest.mark.parametrize("name", ["T", "a-b_c|%1", "%RETRY%" + "g" * 248, "x" * 127])
def test_names_of_topics(name: str) -> None:
    assert refusal_of_topic(name) is None


@pytest.mark.rule("N9")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "The specified topic is blank."),
        ("\n", "The specified topic is blank."),
        ("a b", "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../up", "The specified topic: ../up, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("T\n", "The specified topic: T\n, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, f"The specified topic: {'x' * 128}, is longer than topic max length: 127"),
    ],
)
def test_names_that_no_topic_has(name: str, why: str) -> None:
    assert refusal_of_topic(name) == why


def test_names_of_groups() -> None:
    assert refusal_of_group("g" * 120) is None
    assert refusal_of_group("g" * 121) == f"The specified group: {'g' * 121}, is longer than group max length: 120"
    assert refusal_of_group("a/b") == (
        "The specified group: a/b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    )
    assert refusal_of_group(" ") == "The specified group is blank."
    assert is_group_name("g" * 300)
    assert not is_group_name("")


def test_the_topics_of_the_start() -> None:
    topics = Table()
    assert len(topics.all) == 15
    assert topics.get("b0") == TopicConfig("b0", 1, 1, int(Perm.READ | Perm.WRITE | Perm.INHERIT))
    assert topics.get("TBW102") is not None
    assert Table(TopicDefaults("b0", "c0", auto_create=False)).get("TBW102") is None
    assert all(map(topics.is_system, topics.all))
    assert topics.is_system("rmq_sys_whatever")
    assert topics.is_system("TRANS_CHECK_MAX_TIME_TOPIC")
    assert not topics.is_system("T")


def test_a_send_makes_a_topic_after_its_template() -> None:
    topics = Table()
    made = topics.create_on_send("T", "TBW102", 4, PEER)
    assert made == TopicConfig("T", 4, 4, int(Perm.READ | Perm.WRITE))
    assert topics.create_on_send("U", "TBW102", 100, PEER) == TopicConfig("U", 8, 8, int(Perm.READ | Perm.WRITE))
    assert topics.create_on_send("V", "nope", 4, PEER) is None
    assert topics.create_on_send("V", "T", 4, PEER) is None  # it has no perm to be inherited
    assert topics.create_retry("%RETRY%g") == topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1)


def test_a_full_table_takes_retry_topics_alone() -> None:
    topics = Table(most=17)
    assert topics.create_on_send("T", "TBW102", 4, PEER) is not None
    assert topics.create_on_send("U", "TBW102", 4, PEER) is not None
    assert (topics.room(), topics.create_on_send("V", "TBW102", 4, PEER)) == (0, None)
    before = topics.version.counter
    topics.create_retries({"%RETRY%g": 1, "%RETRY%h": 2})
    assert (topics.get("%RETRY%h"), topics.version.counter) == (TopicConfig("%RETRY%h", 2, 2), before + 1)


def test_a_slave_makes_no_topics_of_its_own() -> None:
    topics = Table(role=Role.SLAVE)
    assert topics.create_retry("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1)
    assert topics.get("%RETRY%g") is None
    assert (topics.told, topics.version.counter) == (0, 0)


def test_sends_of_one_host_leave_a_quarter_of_the_room_to_others() -> None:
    topics = Table(most=115)
    made = [topics.create_on_send(f"T{number}", "TBW102", 1, f"h:{number}") for number in range(100)]
    assert sum(one is not None for one in made) == 75
    assert topics.create_on_send("U", "TBW102", 1, PEER) is not None
