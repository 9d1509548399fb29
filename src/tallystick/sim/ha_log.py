"""A node's CommitLog in the simulator: the production store on a disk of its own that crashes, fills up and fails.

``data`` has the log's bytes as they were last seen, from offset 0 on, those too that retention deleted. What a restart
must bring back is known from them: all whole records that were synced, or, when only the process died, all of them.
Before some restarts one bit of what was synced rots, and the store must refuse to open: to cut it off would lose all
that follows. Of the newest sync alone it cannot know whether it returned.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tallystick.codec.records import BLANK, SMALLEST
from tallystick.errors import CorruptRecord, DiskFull, StorageError
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.values import PutRequest, PutResult
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import KEYS, TAGS, UNIQ_KEY, encode_properties
from tallystick.rocketmq.wire.values import PutStatus
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Event, Events
from tallystick.sim.disk import PLENTY, Crashed
from tallystick.sim.ha_disk import RecordDisk
from tallystick.sim.ha_store import SeenStore
from tallystick.sim.invariants import Violation

FILE_BYTES = 4096
QUEUES = (("A", 0), ("A", 1), ("B", 0))
SHARED_KEYS = 8
_ROOT = "/store"
_HOST = encode_host("127.0.0.1", 10911)
SETTINGS = StoreSettings(
    store_host=_HOST,
    commit_log_file_bytes=FILE_BYTES,
    consume_queue_file_units=16,
    index_slots=16,
    index_entries=48,
    memory_bytes=1 << 30,
)
_ROT = 0.1  # of restarts
_BODY_AT = 88  # of a record with addresses of four bytes; a body has a byte at least
_CLEANS_AT = 0.87  # of the disk's bytes: files go whatever their age, and messages are still taken


class SimLog:
    """The log of a node, in all of its lives.

    Settable: ``meanwhile`` is what the loop does while a thread syncs; ``on_copied(offset, size)`` hears what came from
    a master.
    """

    def __init__(
        self, name: str, disk: RecordDisk, clock: Clock, rng: random.Random, *, slave: bool, sync_flush: bool
    ) -> None:
        self._name, self.disk, self._clock, self._random = name, disk, clock, rng
        self._slave, self.sync_flush = slave, sync_flush
        self._settings = replace(SETTINGS, sync_flush=sync_flush)
        self.data = bytearray()
        self._unsynced_puts: deque[tuple[int, tuple[str, int], int]] = deque()  # puts that are not synced
        self._durable: dict[tuple[str, int], int] = {}  # by queue the offset after the last synced message
        self._number = 0
        self._opened_at = self._certain = (
            0  # a start looks at the records between the two, and knows them to be durable
        )
        self.meanwhile: Callable[[], object] = self.dispatch
        self.on_copied: Callable[[int, int], None] = lambda offset, size: None
        self.was_disturbed = False  # in this life its disk was full, or failed
        self.store = self._open()

    def _open(self) -> SeenStore:
        store = SeenStore.open(
            self.disk, _ROOT, self._settings, self._clock, Events(self._judge_start), slave=self._slave
        )
        assert isinstance(store, SeenStore)
        store.log = self
        self._opened_at = self._certain = store.end
        self._began: int | None = None  # of a closed store
        return store

    def _judge_start(self, event: Event) -> None:
        """Nobody puts files back here: a start finishes what retention began, and dispatches nothing again for it."""
        if event.kind == "log files came back":
            raise Violation(f"restart: all is dispatched again, files came back from {event.fields['first']} on")

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    @property
    def first(self) -> int:
        return self.store.first if self._began is None else self._began

    @property
    def end(self) -> int:
        return self.store.end

    @property
    def flushed(self) -> int:
        return self.store.flushed

    @property
    def empty(self) -> bool:
        """Returns whether it has no bytes: then its end is no position."""
        return self.end == self.first

    def put_requests(self, count: int) -> list[PutRequest]:
        """Returns the put requests of a tick's sends."""
        return [self._put_request() for _ in range(count)]

    def _put_request(self) -> PutRequest:
        rng = self._random
        topic, queue_id = rng.choice(QUEUES)
        messages = tuple(
            (0, rng.randbytes(rng.randint(1, 90)), self._properties()) for _ in range(rng.choice((1, 1, 3)))
        )
        return PutRequest(topic, queue_id, messages, self._clock.wall_ms(), _HOST)

    def _properties(self) -> bytes:
        rng = self._random
        self._number += 1
        properties = {UNIQ_KEY: f"{self._name}-{self._number}"}
        if rng.random() < 0.5:
            properties[KEYS] = f"key{rng.randrange(SHARED_KEYS)}"
        if rng.random() < 0.5:
            properties[TAGS] = rng.choice(("red", "blue"))
        return encode_properties(properties)

    # What the store tells.

    def took(self, before: int, put_requests: Sequence[PutRequest], puts: Sequence[PutResult]) -> None:
        self.see(before)
        for put_request, put in zip(put_requests, puts, strict=True):
            if put.status is PutStatus.PUT_OK:
                self._gave(put_request, put)

    def _gave(self, put_request: PutRequest, put: PutResult) -> None:
        queue = put_request.topic, put_request.queue_id
        if put.queue_offset < self._durable.get(queue, 0):
            raise Violation(f"queue: {queue} gave offset {put.queue_offset} twice")
        self._unsynced_puts.append((put.end, queue, put.queue_offset + len(put_request.messages)))

    def copied(self, offset: int, size: int) -> None:
        self.on_copied(offset, size)

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        before = self.flushed
        with self._interleaved():
            yield
        flushed = self.flushed
        self._certain = max(self._certain, before if flushed > before else 0)
        while self._unsynced_puts and self._unsynced_puts[0][0] <= flushed:
            _, queue, after = self._unsynced_puts.popleft()
            self._durable[queue] = max(self._durable.get(queue, 0), after)

    @contextlib.contextmanager
    def maintaining(self) -> Iterator[None]:
        flushed = self.flushed
        with self._interleaved():
            yield
        self._certain = flushed

    def closing(self) -> None:
        self._began = self.store.first

    @contextlib.contextmanager
    def _interleaved(self) -> Iterator[None]:
        """Let the loop have a turn, now and then, after a sync and before its thread goes on."""

        def meet() -> None:
            if self._chance(0.5):
                self.disk.after_sync = None
                self.meanwhile()

        self.disk.after_sync = meet if self._chance(0.3) else None
        try:
            yield
        finally:
            self.disk.after_sync = None

    def dispatch(self) -> None:
        """Dispatch a part of what may be dispatched."""
        self.store.reput()

    # What happens to it.

    def retain(self) -> None:
        """Delete old files, as on a disk that is nearly full."""
        self.was_disturbed = True
        usage = self.disk.usage(_ROOT)
        self.disk.capacity = int((usage.total - usage.free) / _CLEANS_AT)

    def fill(self, free_bytes: int) -> None:
        """Leave so much free; files without space of their own yet, those of queues and index, may get none."""
        self.was_disturbed = True
        usage = self.disk.usage(_ROOT)
        self.disk.capacity = usage.total - usage.free + free_bytes
        self.disk.fault = self._refuse

    def _refuse(self, operation: str, path: str) -> StorageError | None:
        if operation == "write" and "commitlog" not in path and self._chance(0.3):
            return DiskFull("simulated", path=path)
        return None

    def fail(self) -> None:
        """Let the next sync of a file of the log fail."""
        self.was_disturbed = True
        self.disk.fault = lambda operation, path: (
            StorageError("simulated", path=path) if operation == "sync" and "commitlog" in path else None
        )

    def heal(self) -> None:
        self.disk.capacity, self.disk.fault = PLENTY, None

    def restart(self, *, power_loss: bool) -> None:
        """Start again after the death of the process or the machine."""
        data_before, first = bytes(self.data), self.first
        whole_end = self.whole(self.flushed if power_loss else len(self.data))
        rotten = self._rotten()
        self._unsynced_puts.clear()
        self.was_disturbed = False
        self._crash(power_loss=power_loss)
        if rotten is not None:
            self._check_refusal(*rotten)
        while True:
            try:
                self.store = self._open()
                break
            except Crashed:
                self._crash(power_loss=power_loss)
            except StorageError as error:
                raise Violation(f"restart: {error}") from error
        self.see(self.first)
        if whole_end > first and (
            self.end < whole_end or self.data[self.first : whole_end] != data_before[self.first : whole_end]
        ):
            raise Violation(f"restart: the log was whole up to {whole_end} and is up to {self.end}")

    def _rotten(self) -> tuple[int, int] | None:
        """Returns a synced record and a byte of its body to damage. Returns None for no damage this time."""
        if not self._chance(_ROT):
            return None
        bodies = [
            (offset, offset + _BODY_AT)
            for offset, size in self.records(self._certain)
            if size and offset >= max(self._opened_at, self.first) and offset + size <= self._certain
        ]
        return self._random.choice(bodies) if bodies else None

    def _check_refusal(self, offset: int, at: int) -> None:
        path, position = f"{_ROOT}/commitlog/{at - at % FILE_BYTES:020}", at % FILE_BYTES
        crash_at = self.disk.crash_at
        self.disk.flip(path, position)
        try:
            with self.disk.undisturbed():
                end = self._open().end
        except CorruptRecord:
            self.disk.flip(path, position)
            self.disk.kill()
            self.disk.crash_at = crash_at
            return
        raise Violation(f"restart: one bit of the record at {offset} rotted, and the log was cut at {end}")

    def _crash(self, *, power_loss: bool) -> None:
        if power_loss:
            self.disk.power_loss()
        else:
            self.disk.kill()
        self.heal()
        if self._chance(0.2):
            self.disk.crash_at = self.disk.operations + self._random.randint(1, 60)

    # What it looks like.

    def see(self, start: int) -> None:
        """Note the bytes that the log has from ``start`` on."""
        del self.data[start:]
        self.data += bytes(max(self.first, start) - len(self.data))
        with self.disk.undisturbed():  # a file that nobody read yet is opened for this
            while piece := self.store.slice(len(self.data), FILE_BYTES):
                self.data += piece

    def records(self, end: int) -> Iterator[tuple[int, int]]:
        """Yields position and size of each whole record before ``end``, by the bytes alone; blanks have size 0."""
        offset = self.first
        while offset < end:
            border = offset - offset % FILE_BYTES + FILE_BYTES
            size, magic = (int.from_bytes(self.data[at : at + 4], "big") for at in (offset, offset + 4))
            after = border if magic == BLANK else offset + size
            if after > end or (size < SMALLEST and magic != BLANK):
                return
            yield offset, 0 if magic == BLANK else size
            offset = after

    def whole(self, end: int) -> int:
        """Returns where the last whole record before ``end`` ends, or the blank after it."""
        last = self.first
        for offset, size in self.records(end):
            last = offset + size if size else offset - offset % FILE_BYTES + FILE_BYTES
        return last
