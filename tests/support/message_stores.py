"""Message stores on a simulated disk, small enough that files end and begin all the time."""

from __future__ import annotations

import random
from collections.abc import Sequence

from support.stores import SteppingClock
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import GetStatus, PutRequest, PutResult
from tallystick.rocketmq.wire.message_ids import encode_host
from tallystick.rocketmq.wire.record import StoredMessage, decode_messages, encode_properties
from tallystick.runtime.disk import read_file
from tallystick.runtime.events import Event, Events
from tallystick.sim.disk import SimDisk

ROOT = "/store"
HOST = encode_host("127.0.0.1", 10911)
SMALL = StoreSettings(
    store_host=HOST,
    commit_log_file_bytes=4096,
    consume_queue_file_units=16,
    index_slots=32,
    index_entries=64,
    memory_bytes=1 << 30,
)

_GOES_ON = (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE)  # the second: fillers alone, as a promoted slave's may be


def store_disk(seed: int = 1) -> SimDisk:
    """With the folder of a store, which is there to stay."""
    disk = SimDisk(random.Random(seed))
    disk.makedirs(ROOT)
    disk.sync_dir("/")
    return disk


class Shelf:
    """A store that is opened again and again, and what happened."""

    def __init__(
        self, settings: StoreSettings = SMALL, seed: int = 1, *, slave: bool = False, disk: SimDisk | None = None
    ) -> None:
        self.disk = disk or SimDisk(random.Random(seed))
        self.settings, self.clock = settings, SteppingClock()
        self.events: list[Event] = []
        self.store = self.open(slave=slave)

    def open(self, *, slave: bool | None = None) -> MessageStore:
        """As a slave's or a master's; else as the one before it was."""
        events, role = Events(self.events.append), self.store.slave if slave is None else slave
        self.store = MessageStore.open(self.disk, ROOT, self.settings, self.clock, events, slave=role)
        return self.store

    def send(self, *bodies: bytes, topic: str = "Topic", queue_id: int = 0, **properties: str) -> list[PutResult]:
        """Puts one request for each body."""
        return self.store.put([_put_request(body, topic, queue_id, HOST, properties) for body in bodies])

    def settle(self) -> None:
        """Everything dispatched, synced and noted."""
        self.store.flush()
        self.store.reput()
        self.store.maintain(self.clock.ms)

    def expire(self) -> None:
        """All but the newest files of the log are deleted."""
        self.clock.ms += 100 * 3_600_000
        self.store.delete_expired()
        self.store.maintain(self.clock.ms)

    def copies(self, folder: str) -> dict[str, bytes]:
        """All files of a folder of the store, by their paths."""
        paths = [f"{ROOT}/{folder}/{name}" for name in self.disk.sizes(f"{ROOT}/{folder}")]
        return {path: read_file(self.disk, path) for path in paths}

    def put_back(self, files: dict[str, bytes]) -> None:
        """Write such copies to the disk, durably."""
        for path, data in files.items():
            file = self.disk.open(path, create=True)
            file.write([data], 0)
            file.sync()

    def read(self, topic: str = "Topic", queue_id: int = 0, offset: int | None = None) -> list[StoredMessage]:
        """All messages of a queue."""
        messages: list[StoredMessage] = []
        offset = self.store.queue_range(topic, queue_id)[0] if offset is None else offset
        while (found := self.store.get(topic, queue_id, offset, 32, 1 << 20)).status in _GOES_ON:
            messages += [message for buffer in found.buffers for message in decode_messages(buffer)]
            offset = found.next_offset
        return messages

    def bodies(self, topic: str = "Topic", queue_id: int = 0) -> list[bytes]:
        return [message.stored_body for message in self.read(topic, queue_id)]

    def log(self) -> bytes:
        """All bytes of the log."""
        store, parts = self.store, []
        offset = store.first
        while offset < store.end:
            part = bytes(store.slice(offset, 1 << 20))
            parts.append(part)
            offset += len(part)
        return b"".join(parts)


def put_request(
    body: bytes, *, topic: str = "Topic", queue_id: int = 0, born_host: bytes = HOST, **properties: str
) -> PutRequest:
    return _put_request(body, topic, queue_id, born_host, properties)


def _put_request(body: bytes, topic: str, queue_id: int, born_host: bytes, properties: dict[str, str]) -> PutRequest:
    return PutRequest(topic, queue_id, ((0, body, encode_properties(properties)),), 1_600_000_000_000, born_host)


def batch(bodies: Sequence[bytes], *, topic: str = "Topic", queue_id: int = 0) -> PutRequest:
    return PutRequest(topic, queue_id, tuple((0, body, b"") for body in bodies), 1_600_000_000_000, HOST)
