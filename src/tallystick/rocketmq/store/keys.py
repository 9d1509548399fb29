"""What queues and index make of a record's properties: its tags code, and the hashes of its keys.

A key's hash is that of ``topic#key``, or ``topic#T#tags``; each topic's part is computed once, and so is that of the
ids of one client, which differ in their last digits only. Sources: ``MessageExtBrokerInner.tagsString2tagsCode``,
``IndexService.buildIndex``, ``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.codec.records import hash_latin, hash_utf8, scan_records, signed
from tallystick.rocketmq.store.index_file import index_hash
from tallystick.rocketmq.wire.record import decode_properties

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # its tags codes are the times when a message is due
_LEVELS_S = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)  # messageDelayLevel
_MAX_CACHED = 10_000
_CHANGING = 8  # last digits of a client's id: the counter, and the time within a minute

_P8, _P7, _P6, _P5, _P4, _P3, _P2 = [pow(31, power, 1 << 32) for power in range(_CHANGING, 1, -1)]

_TAGS, _KEYS, _UNIQUE = (b"\x02" + name + b"\x01" for name in (b"TAGS", b"KEYS", b"UNIQ_KEY"))


@dataclass(slots=True)
class TopicKeys:
    """One topic: its name, the hash that its keys' hashes begin with, and what was computed before."""

    name: str
    seed: int
    tags: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # tags code, hash
    clients: dict[bytes, int] = field(default_factory=dict)  # an id's beginning: its hash


class KeyHashes:
    """Keeps what it computed, within limits."""

    def __init__(self) -> None:
        self._topics: dict[bytes, TopicKeys] = {}

    def of_topic(self, topic: bytes) -> TopicKeys:
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= _MAX_CACHED:
                self._topics.clear()
            known = self._topics[topic] = TopicKeys(topic.decode("utf-8", "replace"), hash_utf8(topic + b"#"))
        return known

    def describe(self, topic: TopicKeys, properties: bytes, stored_ms: int) -> tuple[int, list[int]]:
        """The tags code, and the hashes in the original's order: the client's id, the user's keys, the tags."""
        hashes: list[int] = []
        if key := _value(properties, _UNIQUE):
            hashes.append(index_hash(_client_hash(topic, key)))
        if keys := _value(properties, _KEYS):
            hashes += [index_hash(hash_utf8(key, topic.seed)) for key in keys.split(b" ") if key]
        tags_code = 0
        if tags := _value(properties, _TAGS):
            tags_code, tags_hash = topic.tags.get(tags) or _tags_of(topic, tags)
            hashes.append(tags_hash)
        if topic.name == _SCHEDULE_TOPIC:
            tags_code = _due_ms(properties, stored_ms, tags_code)
        return tags_code, hashes

    def of_record(self, record: bytes, physical: int) -> list[int] | None:
        """The hashes of a whole record's keys; None when it is none."""
        run = scan_records(record, physical)
        if not len(run):
            return None
        return self.describe(self.of_topic(run.topics[0]), run.properties[0], run.store_timestamps[0])[1]


def _value(properties: bytes, name: bytes) -> bytes:
    """Of the property ``name``, which has the \\x02 before it and the \\x01 after it; the last one counts."""
    at = properties.rfind(name)
    if at < 0 and not properties.startswith(name[1:]):
        return b""
    start = at + len(name)
    end = properties.find(b"\x02", start)
    return properties[start:end] if end >= 0 else properties[start:]


def _client_hash(topic: TopicKeys, key: bytes) -> int:
    known = topic.clients.get(key[:-_CHANGING])
    if known is None or not key.isascii():
        return _new_client_hash(topic, key)
    a, b, c, d, e, f, g, h = key[-_CHANGING:]
    value: int = known * _P8 + a * _P7 + b * _P6 + c * _P5 + d * _P4 + e * _P3 + f * _P2 + g * 31 + h
    return value & 0xFFFFFFFF


def _new_client_hash(topic: TopicKeys, key: bytes) -> int:
    if key.isascii() and len(key) > _CHANGING:
        if len(topic.clients) >= _MAX_CACHED:
            topic.clients.clear()
        topic.clients[key[:-_CHANGING]] = hash_latin(key[:-_CHANGING], topic.seed)
    return hash_utf8(key, topic.seed)


def _tags_of(topic: TopicKeys, tags: bytes) -> tuple[int, int]:
    if len(topic.tags) >= _MAX_CACHED:
        topic.tags.clear()
    hashed = index_hash(hash_utf8(tags, hash_latin(b"T#", topic.seed)))
    known = topic.tags[tags] = (signed(hash_utf8(tags)), hashed)
    return known


def _due_ms(properties: bytes, stored_ms: int, tags_code: int) -> int:
    """When a delayed message is to be delivered: the original keeps that in place of the tags."""
    level = decode_properties(properties).get("DELAY", "")
    if not level.isdecimal() or not int(level):
        return tags_code
    delay_s: int = _LEVELS_S[min(int(level), len(_LEVELS_S)) - 1]
    return stored_ms + delay_s * 1000
