"""The topics of a broker, and how many queues each has (``TopicConfigManager``, ``TopicValidator``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tallystick.rocketmq.broker.config_table import ConfigTable
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.wire.bodies import TopicTable
from tallystick.rocketmq.wire.registration import topic_places
from tallystick.rocketmq.wire.values import DLQ_PREFIX, RETRY_PREFIX, Perm, TopicConfig
from tallystick.runtime.clock import Clock

MAX_TOPIC_CHARS = 127
MAX_INNER_TOPIC_CHARS = 255  # of retry and dead-letter topics
MAX_GROUP_CHARS = 120
MAX_TOPICS = 30_000  # or their places: with two for each of a group they fit one registration (``topic_places``)
DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_CHARACTERS = "^[%|a-zA-Z0-9_-]+$"
_NAME = re.compile(_CHARACTERS[1:-1], re.ASCII)
_READ_WRITE = int(Perm.READ | Perm.WRITE)
_INHERIT = int(Perm.INHERIT)  # plain numbers: a topic's is looked at for each request
_TEMPLATE = _READ_WRITE | _INHERIT

# What clients may not send to (``TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET``).
NOT_FOR_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)

# Not for clients to make or delete, whether the broker has them or not (``TopicValidator.SYSTEM_TOPIC_SET``).
_SYSTEM = NOT_FOR_CLIENTS | {DEFAULT_TOPIC, "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"}
_SYSTEM_PREFIX = "rmq_sys_"


def refusal_of_topic(name: str) -> str | None:
    """Returns why this is no topic's name, or None if it is one. Names become folders: no other character is
    allowed."""
    if not name.strip():
        return "The specified topic is blank."
    if _NAME.fullmatch(name) is None:
        return f"The specified topic: {name}, contains illegal characters, allowing only {_CHARACTERS}"
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        if len(name) > MAX_INNER_TOPIC_CHARS:
            return (
                f"The specified topic is DLQ or Retry topic: {name}, "
                f"and it's longer than topic max length: {MAX_INNER_TOPIC_CHARS}"
            )
    elif len(name) > MAX_TOPIC_CHARS:
        return f"The specified topic: {name}, is longer than topic max length: {MAX_TOPIC_CHARS}"
    return None


def is_group_name(name: str) -> bool:
    """Whether a name has the characters of a group's name, whatever its length."""
    return _NAME.fullmatch(name) is not None


def refusal_of_group(name: str) -> str | None:
    """Returns why this is no group's name, or None if it is one."""
    if not name.strip():
        return "The specified group is blank."
    if not is_group_name(name):
        return f"The specified group: {name}, contains illegal characters, allowing only {_CHARACTERS}"
    if len(name) > MAX_GROUP_CHARS:
        return f"The specified group: {name}, is longer than group max length: {MAX_GROUP_CHARS}"
    return None


@dataclass(frozen=True)
class TopicDefaults:
    """``queues``: how many a template has, and a topic made by an operator. ``auto_create``: a send makes a missing
    topic."""

    broker: str
    cluster: str
    queues: int = 8
    auto_create: bool = True


def system_topics(defaults: TopicDefaults) -> dict[str, TopicConfig]:
    """Returns the topics that every broker has from the start; the original's clients and tools rely on them."""
    sizes = [
        ("SELF_TEST_TOPIC", 1, _READ_WRITE),
        ("BenchmarkTest", 1024, _READ_WRITE),
        (defaults.cluster, 16, _TEMPLATE),
        (defaults.broker, 1, _TEMPLATE),
        ("OFFSET_MOVED_EVENT", 1, _READ_WRITE),
        (SCHEDULE_TOPIC, 18, _READ_WRITE),
        (f"{defaults.cluster}_REPLY_TOPIC", 1, _READ_WRITE),
        (f"rmq_sys_REVIVE_LOG_{defaults.cluster}", 8, _READ_WRITE),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{defaults.broker}", 1, int(Perm.INHERIT)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, _READ_WRITE),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, _READ_WRITE),
        ("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 1, _READ_WRITE),
        ("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 1, _READ_WRITE),
        ("rmq_sys_wheel_timer", 1, _READ_WRITE),
    ]
    if defaults.auto_create:
        sizes.append((DEFAULT_TOPIC, defaults.queues, _TEMPLATE))
    return {name: TopicConfig(name, queues, queues, perm) for name, queues, perm in sizes}


class Topics(ConfigTable[TopicConfig]):
    """The table: see ``ConfigTable``."""

    def __init__(
        self,
        defaults: TopicDefaults,
        clock: Clock,
        changed: Callable[[], None],
        saved: TopicTable | None = None,
        *,
        most: int = MAX_TOPICS,
        standing: Standing | None = None,
    ):
        topics, version = (saved.topics, saved.version) if saved else ({}, None)
        super().__init__(
            clock,
            changed=changed,
            system=system_topics(defaults),
            saved_entries=topics,
            version=version,
            most=most,
            standing=standing,
        )

    def places(self, config: TopicConfig) -> int:
        return topic_places(config)

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def to_save(self) -> TopicTable:
        """Returns the table for the file; call ``saved`` when the file has it."""
        self._saving_changes = self.changes
        return self.table()

    def table(self) -> TopicTable:
        return TopicTable(self.version, dict(self._table))

    def replace(self, table: TopicTable) -> None:
        """Replace the table by the master's."""
        self._copy(table.topics, table.version)

    def is_system(self, name: str) -> bool:
        """Whether a topic is the broker's own, not for clients to change."""
        return name in self.system or name in _SYSTEM or name.startswith(_SYSTEM_PREFIX)

    def create_on_send(self, name: str, template: str, queues: int, peer: str) -> TopicConfig | None:
        """Make the topic of a message of ``peer`` (host:port), which nobody has made.

        Returns None if the template does not exist or is not inherited, or if there is no room for another topic.
        ``name`` is one that ``refusal_of_topic`` does not refuse, and no retry topic.
        """
        model = self._table.get(template)
        if model is None or not model.perm & _INHERIT:
            return None
        count = max(0, min(queues, model.write_queues))
        topic = TopicConfig(name, count, count, model.perm & ~_INHERIT, model.filter_type, model.sys_flag)
        if self.places(topic) > self.room(peer):
            return None
        self.put(topic, peer=peer)
        return topic

    def create_retry(self, name: str, queues: int = 1) -> TopicConfig:
        """Returns a retry or dead-letter topic. It is made if it is not there yet, but not on a slave."""
        self.create_retries({name: queues})
        return self._table.get(name) or TopicConfig(name, queues, queues, _READ_WRITE)

    def create_retries(self, queues: Mapping[str, int]) -> None:
        """Make the retry topics that are not there yet, all in one step. Only groups that exist have any."""
        missing_topics = [
            TopicConfig(name, count, count, _READ_WRITE) for name, count in queues.items() if name not in self._table
        ]
        if missing_topics and not self._standing.is_slave:
            self.put(*missing_topics)
