"""How far the sinks have come that send to this store, each message once: by topic and application the newest batch,
and the last message of each partition of it.

It is made of the log alone: what a record says of its sink holds when the record is in the log (on a master when it is
appended, on a slave when it is dispatched, and behind the last checkpoint when the store is opened). So a message is
never taken for stored that a kill, a power loss or a takeover cost. A checkpoint notes the rows that changed, and up to
which offset of the log they count (``end``), only when the log is durable up to there.

An application has one batch here, the newest. Of a batch that was complete before that began nothing is needed.

A master's checks keep the table within its bounds. A log may be an original's, which stores what anybody sends: so what
comes of a log or of a master's table has the same bounds, and beyond them what is here already stays. An original never
said of a message that it is stored once, so nobody counts on what is passed over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from tallystick.codec.records import RecordRun
from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.store.folder_names import may_be_folder
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.wire.sink_identity import SINK_MARK, SinkIdentity, identity_of, is_possible

_DAY_MS = 24 * 3600 * 1000
_LOOK_MS = 60_000  # between two looks for what has expired
_PART_KEYS = 1024  # are looked at while the lock is held: the loop waits for it
_SINK_BEGIN = b"\x02" + SINK_MARK
# A copy of a message that a consumer gave back has its properties, and is none of the sink's.
_COPIES = (b"%RETRY%", b"%DLQ%")
_OWN_PARTS = 3  # of an identity, at its end: others of a partition have others
_ANY = ("q", 0, 1, 0, 0, 0, "b")  # of an identity, behind its application
MOST_ROWS = 2  # for each partition that there may be: there are those that are forgotten, too

Key = tuple[str, str]  # topic, application


class SinkPartition(msgspec.Struct, array_like=True, frozen=True):
    """The last message of one partition of a batch."""

    partition: int
    sequence: int
    crc: int
    queue_id: int
    queue_offset: int
    end: int  # the physical offset behind it
    stored_ms: int


class SinkBatch(msgspec.Struct, array_like=True, frozen=True):
    """The newest batch of an application in one topic; names are as ``SinkIdentity`` has them. Of what an operator had
    forgotten it has no partitions."""

    topic: str
    application: str
    query: str
    batch: int
    partition_count: int
    brokers: str
    partitions: list[SinkPartition]
    forgotten_end: int = 0  # what the log has before this physical offset is forgotten
    forgotten_ms: int = 0

    @property
    def key(self) -> Key:
        return self.topic, self.application


@dataclass
class SinkState:
    """The same, as it changes."""

    query: str
    batch: int
    partition_count: int
    brokers: str
    partitions: dict[int, SinkPartition] = field(default_factory=dict)
    end: int = 0  # the physical offset behind the newest message
    stored_ms: int = 0
    forgotten_end: int = 0
    forgotten_ms: int = 0

    def row(self, key: Key) -> SinkBatch:
        partitions = list(self.partitions.values())
        forgotten = self.forgotten_end, self.forgotten_ms
        return SinkBatch(*key, self.query, self.batch, self.partition_count, self.brokers, partitions, *forgotten)


@dataclass(frozen=True)
class SinkChanges:
    """What a checkpoint is to note: rows that changed or went before ``end``, an offset of the log."""

    rows: list[SinkBatch]
    removed_keys: list[Key]
    end: int


class SinkTable:
    """``lock`` is held while a master appends what a sink sent: until the table has it, no checkpoint looks at it."""

    def __init__(self, settings: StoreSettings) -> None:
        self.most, self._expire_ms = settings.max_sink_partitions, settings.sink_expire_days * _DAY_MS
        self.lock = threading.RLock()
        self._states: dict[Key, SinkState] = {}
        self._changed: set[Key] = set()
        self._pending: SinkChanges | None = None  # waits for the log to be durable
        self._partition_count = 0  # of partitions
        self._looked_ms = 0
        self.removals = 0  # of rows, in this process
        self.refused_count = 0  # of partitions for which there was no room, by the log or by a master's table
        self._reported_count = 0  # of them
        self._is_reported = False

    def find(self, topic: str, application: str) -> SinkState | None:
        """Returns None for one that is forgotten, too."""
        state = self._states.get((topic, application))
        return state if state is not None and state.partitions else None

    def is_forgotten(self, topic: str, application: str) -> bool:
        """Whether an operator had it forgotten, and it has sent nothing since."""
        state = self._states.get((topic, application))
        return state is not None and not state.partitions

    @property
    def count(self) -> int:
        """Returns how many applications there are, with those that are forgotten."""
        return len(self._states)

    @property
    def room(self) -> int:
        """Returns how many more partitions may be made."""
        return max(0, self.most - self._partition_count)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def room_for(self, topic: str, identity: SinkIdentity) -> int:
        """Returns how many more partitions a batch may have: those that it takes the place of are its own."""
        state = self.find(topic, identity.application)
        is_replaced = state is not None and (state.query, state.batch) != (identity.query, identity.batch)
        return self.room + (len(state.partitions) if state is not None and is_replaced else 0)

    def refusals(self) -> int:
        """Returns how many partitions were refused since the last call, but 0 until there was room again: once is
        enough."""
        count = self.refused_count - self._reported_count
        self._reported_count = self.refused_count
        is_news = count > 0 and not self._is_reported
        self._is_reported = (self._is_reported or count > 0) and not self.room
        return count if is_news else 0

    def rows(self, start: int = 0, most_partitions: int | None = None) -> list[SinkBatch]:
        """Returns a copy of those from a place on, in the order in which the applications came: up to the one with
        which they have ``most_partitions``."""
        rows, count = list[SinkBatch](), 0
        with self.lock:
            for key, state in islice(self._states.items(), start, None):
                rows.append(state.row(key))
                count += max(1, len(state.partitions))
                if most_partitions is not None and count >= most_partitions:
                    break
        return rows

    # What the log has

    def put(self, topic: str, identity: SinkIdentity, place: tuple[int, int, int], stored_ms: int) -> None:
        """A message is in the log. ``place``: its queue, its offset there, and the physical offset behind it.

        The order of the calls does not matter: what is further behind in the log is newer.
        """
        queue_id, queue_offset, end = place
        key = topic, identity.application
        with self.lock:
            state = self._states.get(key)
            if state is not None and end <= state.forgotten_end:
                return
            if state is None or (state.query, state.batch) != (identity.query, identity.batch):
                if state is not None and end <= state.end:
                    return
                before = self._remove(key)
                state = self._states[key] = SinkState(
                    identity.query, identity.batch, identity.partitions, identity.brokers
                )
                if before is not None:
                    state.forgotten_end, state.forgotten_ms = before.forgotten_end, before.forgotten_ms
            last = state.partitions.get(identity.partition)
            if last is not None and last.end >= end:
                return
            self._partition_count += last is None
            state.partitions[identity.partition] = SinkPartition(
                identity.partition, identity.sequence, identity.crc, queue_id, queue_offset, end, stored_ms
            )
            if end > state.end:
                state.end, state.brokers = end, identity.brokers
            state.stored_ms = max(state.stored_ms, stored_ms)
            self._changed.add(key)

    def _take(self, topic: str, identity: SinkIdentity, place: tuple[int, int, int], stored_ms: int) -> None:
        """As ``put``, for what nobody has checked: it may be impossible, or too much."""
        queue_id, _, end = place
        with self.lock:
            state = self._states.get((topic, identity.application))
            is_same = state is not None and (state.query, state.batch) == (identity.query, identity.batch)
            last = state.partitions.get(identity.partition) if state is not None and is_same else None
            if last is None:
                if not may_be_folder(topic, queue_id) or not is_possible(identity):
                    return
                if not self.room_for(topic, identity):
                    self.refused_count += 1
                    return
            if last is None or last.end < end:
                self.put(topic, identity, place, stored_ms)

    def dispatched(self, run: RecordRun, base: int, deletions: Mapping[str, int] | None = None) -> None:
        """Some records of the log, which begin at ``base``. ``deletions``: of topics, each at its physical offset, if
        the log is read again."""
        if SINK_MARK not in b"".join(run.properties):
            return
        last_numbers: dict[tuple[bytes, bytes], int] = {}  # by topic, and what the messages of a partition share
        for number, properties in enumerate(run.properties):
            _, mark, rest = (b"\x02" + properties).partition(_SINK_BEGIN)  # others have names that end like it
            if mark and not run.topics[number].startswith(_COPIES):
                shared = rest.partition(b"\x02")[0].rsplit(b" ", _OWN_PARTS)[0]
                last_numbers[run.topics[number], shared] = number
        for number in last_numbers.values():
            properties = run.properties[number]
            try:
                identity = identity_of(properties)
            except RemoteProtocolError:  # an original stores whatever it is sent
                continue
            if identity is not None:
                place = (
                    run.queue_ids[number],
                    run.queue_offsets[number],
                    base + run.positions[number] + run.sizes[number],
                )
                topic, stored_ms = run.topics[number].decode("utf-8", "replace"), run.store_timestamps[number]
                if deletions is not None and place[-1] <= deletions.get(topic, -1):
                    continue
                if deletions is not None and not self.room and stored_ms >= self._looked_ms + _LOOK_MS:
                    self.expire(stored_ms)  # when it was stored these were gone
                self._take(topic, identity, place, stored_ms)

    def learn(self, rows: Iterable[SinkBatch], end: int) -> None:
        """Take over what a master's table says of messages before the physical offset ``end``, up to which its log is
        here, or was before it begins here."""
        self._learn(rows, end, self._take)

    def _learn(self, rows: Iterable[SinkBatch], end: int, take: Callable[..., None]) -> None:
        for row in rows:
            if 0 < row.forgotten_end <= end:
                self._forget(row.key, row.forgotten_end, row.forgotten_ms)
            for last in row.partitions:
                if last.end <= end:
                    identity = SinkIdentity(
                        row.application,
                        row.query,
                        row.batch,
                        row.partition_count,
                        last.partition,
                        last.sequence,
                        last.crc,
                        row.brokers,
                    )
                    take(row.topic, identity, (last.queue_id, last.queue_offset, last.end), last.stored_ms)

    # What goes

    def forget(self, deletions: Mapping[str, int]) -> None:
        """Topics were deleted, each at its physical offset."""
        with self.lock:
            for key in [key for key, state in self._states.items() if state.end <= deletions.get(key[0], -1)]:
                self._remove(key)

    def forget_application(self, topic: str, application: str, now_ms: int) -> bool:
        """Forget all that the log has of an application up to now, whenever it is read again. Returns False if too many
        are forgotten."""
        with self.lock:
            state = self._states[topic, application]
            return self._forget((topic, application), state.end, now_ms)

    def _forget(self, key: Key, end: int, now_ms: int) -> bool:
        with self.lock:
            state = self._states.get(key)
            if state is not None and state.forgotten_end >= end:
                return True
            if state is None and not (may_be_folder(key[0], 0) and is_possible(SinkIdentity(key[1], *_ANY))):
                return False
            if self.count >= MOST_ROWS * self.most:
                return False
            if state is not None and state.end > end:  # it has sent again since
                for partition in [each for each, last in state.partitions.items() if last.end <= end]:
                    del state.partitions[partition]
                    self._partition_count -= 1
            else:
                self._remove(key)
                state = self._states[key] = SinkState("", -1, 0, "", end=end, stored_ms=now_ms)
            state.forgotten_end, state.forgotten_ms = end, now_ms
            self._changed.add(key)
            return True

    def expire(self, now_ms: int) -> None:
        """Forget applications that sent nothing for long."""
        if 0 <= now_ms - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now_ms
        with self.lock:
            keys = list(self._states)
        for key, state in self._looked_up(keys):
            if state is not None and state.stored_ms + self._expire_ms < now_ms:
                self._remove(key)

    def _looked_up(self, keys: Sequence[Key]) -> Iterator[tuple[Key, SinkState | None]]:
        """Yields the states of some keys, None where there is none any more. The lock is held, but not all the time."""
        for first in range(0, len(keys), _PART_KEYS):
            with self.lock:
                for key in keys[first : first + _PART_KEYS]:
                    yield key, self._states.get(key)

    def _remove(self, key: Key) -> SinkState | None:
        state = self._states.pop(key, None)
        if state is not None:
            self._partition_count -= len(state.partitions)
            self._changed.add(key)
            self.removals += 1
        return state

    # What is noted

    def load(self, rows: Iterable[SinkBatch], log_end: int) -> bool:
        """Take what a checkpoint noted. Returns whether all of it is of a log that ends at ``log_end``."""
        rows = list(rows)
        if any(end > log_end for row in rows for end in _ends(row)):
            return False
        self._learn(rows, log_end, self.put)  # all of it, though less may be allowed by now: somebody counts on it
        self._changed.clear()
        return True

    def changes(self, end: Callable[[], int], durable_end: int) -> SinkChanges | None:
        """Returns what a checkpoint is to note; it must not be called with ``lock`` held by who appends.

        ``end``, which is called with the lock held, says before which offset all messages are in the table.
        ``durable_end``: the log is durable up to there. What is not durable yet waits for another checkpoint.
        """
        if self._pending is None:
            with self.lock:
                changed, self._changed, noted_end = self._changed, set(), end()
            rows, gone = list[SinkBatch](), list[Key]()
            for key, state in self._looked_up(sorted(changed)):
                if state is None:
                    gone.append(key)
                else:
                    rows.append(state.row(key))
            self._pending = SinkChanges(rows, gone, noted_end)
        pending = self._pending
        # A row may have messages behind ``end``, which came while a slave's records were dispatched, or since.
        if max(pending.end, *(end for row in pending.rows for end in _ends(row)), 0) > durable_end:
            return None
        self._pending = None
        return pending


def _ends(row: SinkBatch) -> Iterator[int]:
    """Yields the physical offsets that a log has which has all that the row says."""
    yield row.forgotten_end
    for last in row.partitions:
        yield last.end
