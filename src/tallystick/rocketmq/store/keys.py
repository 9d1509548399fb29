"""What queues and index make of records' properties: their tags codes, and the hashes of their keys.

A key's hash is that of ``topic#key``, or ``topic#T#tags``; each topic's part is computed once, and so is that of its
tags. The other keys of a run are hashed at once. Sources: ``MessageExtBrokerInner.tagsString2tagsCode``,
``IndexService.buildIndex``, ``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat

from tallystick.codec.client_ids import UNIQUE, hash_client_ids
from tallystick.codec.implementation import is_compiled
from tallystick.codec.records import RecordRun, hash_latin, hash_texts, hash_utf8, scan_records, signed
from tallystick.rocketmq.store.index_file import index_hashes
from tallystick.rocketmq.wire.numbers import number_of
from tallystick.rocketmq.wire.record import decode_properties
from tallystick.rocketmq.wire.sink_identity import SINK_MARK

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"  # its tags codes are the times when a message is due
_LEVELS_S = (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)  # messageDelayLevel
MAX_KEYS = 1000  # of one message that are in the index: it is dispatched in one turn of the loop
_MAX_CACHED = 10_000
_LONGEST_KEPT = 512
# For fewer records it is not worth while to look at them by columns, but for the compiled codec.
_FEW = 1 if is_compiled() else 16

_IDENTITY = b"\x02" + SINK_MARK  # of a message that a sink sent
_TAGS, _KEYS = (b"\x02" + name + b"\x01" for name in (b"TAGS", b"KEYS"))


Others = tuple[tuple[bytes, ...], int, int | None]  # the user's keys, the tags code, the hash of the tags


@dataclass(slots=True)
class TopicKeys:
    """One topic: its name, the hash with which the hashes of its keys begin, and whether it has delayed messages."""

    name: str
    seed: int
    delayed: bool


@dataclass(slots=True)
class RunKeys:
    """The keys of a run of records: the tags code of each record; and, in the index's order, record and hash of each
    key."""

    tags_codes: list[int]
    records: list[int]
    hashes: list[int]


@dataclass(slots=True)
class Alike:
    """What ``scan_alike`` needs to know of records without keys of users and tags: what stands around their ids."""

    topic: bytes
    keys: TopicKeys
    before: bytes
    after: bytes
    tags_code: int


class KeyHashes:
    """Computes tags codes and hashes. It caches what it computed, within limits."""

    def __init__(self) -> None:
        self.alike: Alike | None = None  # of the last run that was such; in Python none: it would take longer
        self._topics: dict[bytes, TopicKeys] = {}
        self._others: dict[tuple[bytes, bytes, bytes], Others] = {}  # by topic, and the properties around the id

    def of_topic(self, topic: bytes) -> TopicKeys:
        topic_keys = self._topics.get(topic)
        if topic_keys is None:
            if len(self._topics) >= _MAX_CACHED:
                self._topics.clear()
            name = topic.decode("utf-8", "replace")
            topic_keys = TopicKeys(name, hash_utf8(topic + b"#"), name == _SCHEDULE_TOPIC)
            self._topics[topic] = topic_keys
        return topic_keys

    def of_run(self, run: RecordRun) -> RunKeys:
        """The original's order of a record's keys: the client's id, the user's keys, the tags."""
        texts = _without_identities(run.properties)
        return self._of_alike(run, texts) or self._of_any(run, texts)

    def _of_alike(self, run: RecordRun, properties: Sequence[bytes]) -> RunKeys | None:
        """Of one topic, with properties that differ in nothing but the client's id, and no keys of users."""
        count = len(run)
        if count < _FEW:
            return None
        name = run.topics[0]
        topic = self.of_topic(name)
        if topic.delayed or run.topics.count(name) != count:
            return None
        outcome = hash_client_ids(properties, topic.seed)
        if outcome is None:
            return None
        head, tail, hashes = outcome
        user_keys, tags_code, tags_hash = self._others.get((name, head, tail)) or self._others_of(name, head, tail)
        if user_keys:
            return None
        if is_compiled() and tags_hash is None and properties is run.properties:
            self._note_alike(Alike(name, topic, (head + UNIQUE)[1:], b"\x02" + tail, tags_code), properties[0])
        records = list(range(count))
        if tags_hash is not None:
            hashes = list(chain.from_iterable(zip(hashes, repeat(tags_hash))))
            records = list(chain.from_iterable(zip(records, records, strict=True)))
        return RunKeys([tags_code] * count, records, index_hashes(hashes))

    def _note_alike(self, alike: Alike, properties: bytes) -> None:
        if properties.startswith(alike.before) and properties.endswith(alike.after) and SINK_MARK not in properties:
            self.alike = alike

    def _of_any(self, run: RecordRun, properties_of: Sequence[bytes]) -> RunKeys:
        tags_codes: list[int] = []
        records: list[int] = []
        hashes: list[int] = []
        texts: list[bytes] = []  # still to be hashed,
        seeds: list[int] = []
        places: list[int] = []  # and where in ``hashes`` they belong
        topics, others = self._topics, self._others
        for number, (name, properties) in enumerate(zip(run.topics, properties_of, strict=True)):
            topic = topics.get(name) or self.of_topic(name)
            # The last one of a name counts. Without any the key is what lies before the first mark: nothing.
            head, _, rest = (b"\x02" + properties).rpartition(UNIQUE)
            key, _, tail = rest.partition(b"\x02")
            other_keys = others.get((name, head, tail)) or self._others_of(name, head, tail)
            user_keys, tags_code, tags_hash = other_keys
            for text in (key, *user_keys) if key else user_keys:
                texts.append(text)
                seeds.append(topic.seed)
                places.append(len(hashes))
                records.append(number)
                hashes.append(0)
            if tags_hash is not None:
                records.append(number)
                hashes.append(tags_hash)
            if topic.delayed:
                tags_code = _due_ms(properties, run.store_timestamps[number], tags_code)
            tags_codes.append(tags_code)
        for place, value in zip(places, hash_texts(texts, seeds), strict=True):
            hashes[place] = value
        return RunKeys(tags_codes, records, index_hashes(hashes))

    def _others_of(self, topic: bytes, head: bytes, tail: bytes) -> Others:
        """What the properties around the client's id say; kept if the next message may well say the same."""
        marked = head + b"\x02" + tail
        keys = marked.rpartition(_KEYS)[2].partition(b"\x02")[0]
        tags = marked.rpartition(_TAGS)[2].partition(b"\x02")[0]
        user_keys = tuple(islice(filter(None, keys.split(b" ")), MAX_KEYS))
        others: Others = (user_keys, 0, None)
        if tags:
            seed = hash_latin(b"T#", self.of_topic(topic).seed)
            others = (user_keys, signed(hash_utf8(tags)), hash_utf8(tags, seed))
        if not user_keys and len(marked) <= _LONGEST_KEPT:
            if len(self._others) >= _MAX_CACHED:
                self._others.clear()
            self._others[topic, head, tail] = others
        return others

    def of_record(self, record: bytes, physical: int) -> list[int] | None:
        """The hashes of a whole record's keys; None when it is none."""
        run = scan_records(record, physical)
        return self.of_run(run).hashes if len(run) else None


def _without_identities(properties: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the properties without what a sink says of each message, and of no other: it is neither key nor tag, and
    no two messages would be alike with it."""
    if not properties or _IDENTITY not in properties[0]:
        return properties
    parts = [text.partition(_IDENTITY) for text in properties]
    return [head + mark[:1] + rest.partition(b"\x02")[2] for head, mark, rest in parts]


def _due_ms(properties: bytes, stored_ms: int, tags_code: int) -> int:
    """Returns when a delayed message is to be delivered: the original stores that in place of the tags code."""
    level = decode_properties(properties).get("DELAY", "")
    number = number_of(level)
    if not number:
        return tags_code
    delay_s: int = _LEVELS_S[min(number, len(_LEVELS_S)) - 1]
    return stored_ms + delay_s * 1000
