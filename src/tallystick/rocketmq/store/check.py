"""The check of a whole store directory, ours or the original's: every record, queue unit and index entry.

It reads only. A store that is in use may show findings at its end that are no damage.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from tallystick.codec.records import Stop
from tallystick.errors import StorageError, UsageError
from tallystick.rocketmq.store.consume_queues import list_queues
from tallystick.rocketmq.store.files import FileQueue
from tallystick.rocketmq.store.handles import Handles
from tallystick.rocketmq.store.index_file import IndexFile
from tallystick.rocketmq.store.keys import KeyHashes
from tallystick.rocketmq.store.queue_state import read_queue_state
from tallystick.rocketmq.store.recovery import durable_end, is_torn
from tallystick.rocketmq.store.reput import COMMITTED, TRANSACTION
from tallystick.rocketmq.store.scan import Chunk, chunks, claimed_size, find_record
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.rocketmq.store.synced import SyncRecord, read_synced
from tallystick.rocketmq.store.units import FILLER_SIZE, UNIT
from tallystick.runtime.disk import Disk

MAX_FINDINGS = 1000
_READ_UNITS = 8192


class Problem(enum.Enum):
    """The kinds of damage."""

    FILES = "files have the wrong size, or one is missing"
    DAMAGED_RECORD = "a damaged record, and good ones after it"
    TORN_TAIL = "the last record is not whole"
    LOST_END = "the log was durable beyond its last whole record"
    NO_UNIT = "a message that its queue does not have"
    WRONG_UNIT = "a unit that differs from its message"
    UNIT_WITHOUT_RECORD = "a unit without a message"
    ENTRY_WITHOUT_RECORD = "an index entry without a message"
    WRONG_ENTRY = "an index entry whose hash is of none of the message's keys"
    BROKEN_CHAIN = "an index entry that points forward"


@dataclass(frozen=True)
class Finding:
    """A problem at byte ``position`` of the file, or run of files, at ``path``."""

    problem: Problem
    path: str
    position: int
    detail: str = ""


@dataclass
class CheckReport:
    """The result of a check. ``findings`` has the first thousand, ``problems`` counts all by kind."""

    first: int = 0
    end: int = 0
    records: int = 0
    units: int = 0
    entries: int = 0
    queues: int = 0
    problems: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.problems += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


@dataclass
class _QueueState:
    files: FileQueue
    matched_units: int = 0


class _Check:
    def __init__(self, disk: Disk, directory: str, settings: StoreSettings) -> None:
        self._disk, self._directory, self._settings = disk, directory, settings
        self._handles = Handles(disk, settings.max_open_files)
        self._hashes = KeyHashes()
        self._queues: dict[tuple[str, int], _QueueState] = {}
        state = read_queue_state(disk, directory)
        self._forgotten_up_to = state.forgotten_up_to
        self._deletions, self._born = state.deletions, {key: row.born for key, row in state.queues.items()}
        self.report = CheckReport()

    def run(self) -> CheckReport:
        log = self._load("commitlog", self._settings.commit_log_file_bytes)
        if log is None:
            return self.report
        synced = read_synced(self._disk, self._directory)
        self.report.first = self.report.end = max(log.first, synced.start if synced else 0)
        for queue in list_queues(self._disk, self._path("consumequeue")):
            topic, queue_id = queue
            files = self._load(
                os.path.join("consumequeue", topic, str(queue_id)), self._settings.consume_queue_file_units * UNIT.size
            )
            if files is not None:
                self._queues[queue] = _QueueState(files)
        self.report.queues = len(self._queues)
        self._check_log(log, synced)
        for state in self._queues.values():
            self._check_queue(state)
        self._check_index(log)
        return self.report

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _load(self, name: str, file_bytes: int) -> FileQueue | None:
        path = self._path(name)
        files = FileQueue(self._disk, path, file_bytes, self._handles)
        try:
            files.load(tail=None)
        except (UsageError, StorageError) as error:
            self.report.add(Finding(Problem.FILES, error.fields.get("path", path), 0, str(error)))
            return None
        return files

    def _check_log(self, log: FileQueue, synced: SyncRecord | None) -> None:
        durable, tail = (durable_end(log, synced), synced.tail) if synced else (0, 0)
        offset: int | None = self.report.first
        while offset is not None:
            stop = Stop.END
            for chunk in chunks(log, offset):
                self._check_records(chunk)
                self.report.end, stop = chunk.end, chunk.run.stop
            if stop is Stop.BLANK:
                self.report.end = log.limit
            # After damage the check goes on with the next good record.
            damaged_at, offset = self.report.end, find_record(log, self.report.end)
            if offset is not None:
                detail = f"the next good record begins at {offset}"
                self.report.add(Finding(Problem.DAMAGED_RECORD, log.directory, damaged_at, detail))
            elif damaged_at < durable and not is_torn(log, damaged_at, tail, durable):
                detail = f"it was synced up to {durable}: a broker does not start with this"
                self.report.add(Finding(Problem.LOST_END, log.directory, damaged_at, detail))
            elif stop is Stop.DAMAGED:
                self.report.add(Finding(Problem.TORN_TAIL, log.directory, damaged_at))

    def _check_records(self, chunk: Chunk) -> None:
        run = chunk.run
        self.report.records += len(run)
        tags_codes = self._hashes.of_run(run).tags_codes
        for number, position in enumerate(run.positions):
            if run.sys_flags[number] & TRANSACTION not in COMMITTED:
                continue
            physical, topic = chunk.offset + position, run.topics[number]
            keys = self._hashes.of_topic(topic)
            queue = keys.name, run.queue_ids[number]
            if physical < max(self._deletions.get(keys.name, 0), self._born.get(queue, 0)):
                continue
            state = self._queues.get(queue)
            if state is None and physical < self._forgotten_up_to:
                continue  # of one of very many deleted topics
            at = run.queue_offsets[number] * UNIT.size
            unit = state.files.read(at, UNIT.size) if state else b""
            if state is None or len(unit) < UNIT.size or not any(unit):
                self.report.add(Finding(Problem.NO_UNIT, self._unit_path(*queue), at, f"physical offset {physical}"))
                continue
            state.matched_units += 1
            expected = physical, run.sizes[number], tags_codes[number]
            if unit != UNIT.pack(*expected):
                detail = f"it has {UNIT.unpack(unit)}, expected {expected}"
                self.report.add(Finding(Problem.WRONG_UNIT, self._unit_path(*queue), at, detail))

    def _unit_path(self, topic: str, queue_id: int) -> str:
        return os.path.join(self._path("consumequeue"), topic, str(queue_id))

    def _check_queue(self, state: _QueueState) -> None:
        """Units that no message stands behind: those before the log's first byte have lost theirs in order."""
        unmatched = -state.matched_units
        suspects: list[Finding] = []
        for number, (physical, size, _) in _units(state.files):
            if size == FILLER_SIZE or physical < self.report.first:
                continue
            self.report.units += 1
            unmatched += 1
            if physical + size > self.report.end:
                detail = f"physical offset {physical}, the log ends at {self.report.end}"
                suspects.append(Finding(Problem.UNIT_WITHOUT_RECORD, state.files.directory, number * UNIT.size, detail))
        for suspect in suspects:
            self.report.add(suspect)
        if unmatched > len(suspects):
            detail = f"{unmatched - len(suspects)} units"
            self.report.add(Finding(Problem.UNIT_WITHOUT_RECORD, state.files.directory, 0, detail))

    def _check_index(self, log: FileQueue) -> None:
        root = self._path("index")
        for name in self._disk.listdir(root) if self._disk.exists(root) else ():
            path = os.path.join(root, name)
            if (expected := IndexFile.size_of(self._settings)) != (size := _size(self._disk, path)):
                self.report.add(Finding(Problem.FILES, path, 0, f"{size} bytes, the settings say {expected}"))
                continue
            file = IndexFile(self._handles, path, self._settings)
            for number in range(1, file.header.count):
                self._check_entry(log, file, number)
            self.report.entries += file.header.count - 1
            file.close()

    def _check_entry(self, log: FileQueue, file: IndexFile, number: int) -> None:
        key_hash, physical, _, previous = file.entry(number)
        position = file.entry_position(number)
        if not 0 <= previous < number:
            self.report.add(Finding(Problem.BROKEN_CHAIN, file.path, position, f"entry {number} points to {previous}"))
        if physical < self.report.first:
            return
        size = claimed_size(log, physical)
        keys = self._hashes.of_record(log.read(physical, size), physical) if size else None
        if keys is None:
            detail = f"entry {number}: physical offset {physical}"
            self.report.add(Finding(Problem.ENTRY_WITHOUT_RECORD, file.path, position, detail))
        elif key_hash not in keys:
            detail = f"entry {number}: physical offset {physical}, hash {key_hash}"
            self.report.add(Finding(Problem.WRONG_ENTRY, file.path, position, detail))


def check_store(disk: Disk, directory: str, settings: StoreSettings) -> CheckReport:
    """Check a store. ``settings`` must have the sizes that it was made with."""
    return _Check(disk, directory, settings).run()


def _units(files: FileQueue) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Numbers and units, up to the first that was never written."""
    position = files.first
    while position < files.limit:
        data = files.read(position, _READ_UNITS * UNIT.size)
        for number, unit in enumerate(UNIT.iter_unpack(data), position // UNIT.size):
            if unit[1] <= 0:
                return
            yield number, unit
        position += len(data)


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
