"""One simulated life of a bookie's storage: adds, fences, checkpoints, collections, crashes; checked all along.

The promises: what a commit made durable is there after any crash with equal bytes, fences included; a "no" said after a
restart stays a "no"; a deleted ledger never comes back half; a full disk does not keep what deleted ledgers have. The
model in ``storage_model.py`` has for each entry the versions that were sent, and which of them was promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.state_file import SPARE_FILE
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire import v2
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.digest import ENTRY_HEADER, master_key
from tallystick.bookkeeper.wire.values import NO_ENTRY
from tallystick.codec.frames import scan_adds
from tallystick.codec.steps import finished
from tallystick.errors import DiskFull, StorageError
from tallystick.sim.disk import PLENTY, Crashed, SimDisk
from tallystick.sim.invariants import Violation
from tallystick.sim.series import Outcome
from tallystick.sim.storage_model import (
    FOLDERS,
    IDS,
    LEDGER_DIR,
    SETTINGS,
    Flight,
    LedgerModel,
    TickingClock,
    Versions,
    absent,
    check_lac,
    check_reads,
    check_rot,
    expect,
    key_of,
    lac_body,
)
from tallystick.sim.storage_rewrites import Rewrites
from tallystick.sim.virtual.trace import Trace

STEPS = 120
SPARE = f"{LEDGER_DIR}/{SPARE_FILE}"


class StorageLife:
    """One life of a storage, with its disk and its model."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.random = random.Random(seed)
        self.disk = self.make_disk(random.Random(seed + 1))
        self.trace = Trace(lambda: float(self.disk.operations), keep=keep_trace)  # its time is the disk's work
        self.clock = TickingClock()
        self.books = {ledger: LedgerModel() for ledger in IDS}
        self.promise_count = 0
        self.crashes = 0
        self._flaky = self.random.choice((0.0, 0.0, 0.01))
        self._staged_adds: list[tuple[int, int, int]] = []
        self._staged_fences: list[int] = []
        self._staged_lacs: list[tuple[int, int]] = []
        self._defers = seed % 7 in (0, 3)  # not those that once failed: they stay as they were
        self._flight: Flight | None = None
        self._unsynced: list[Flight] = []  # written: a process that dies does not lose them
        self._plan: CheckpointPlan | None = None
        self._is_plan_written = False
        self._rewrites = Rewrites(seed, self.trace)
        self._forgetting: set[int] = set()  # deleted ledgers that the disk may not remember as such
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.add_run, 30), (self.add_one, 10), (self.fence, 4), (self.wrong_key, 2), (self.commit, 30),
            (self.upkeep, 25), (self.look, 10), (self.crash_soon, 3), (self.restart, 2), (self.fill_up, 2),
            (self.write_lac, 6),
        ]  # fmt: skip
        self.storage = self._open()

    def make_disk(self, rng: random.Random) -> SimDisk:
        return SimDisk(rng)

    def _reopen(self) -> Storage:
        return Storage.open(self.disk, FOLDERS, SETTINGS, clock=self.clock, random=self.random)

    def _open(self) -> Storage:
        while True:
            try:
                return self._reopen()
            except Crashed:
                self._reboot()

    def _reboot(self) -> None:
        self.crashes += 1
        lost_power = self.random.random() < 0.6
        self.trace.note("the power is lost" if lost_power else "killed")
        if lost_power:
            self.disk.power_loss()
            self._unsynced = []
        else:
            self.disk.kill()
        self.disk.fault = None
        if self.random.random() < 0.2:
            self.disk.crash_at = self.disk.operations + self.random.randint(1, 60)

    def live(self) -> None:
        actions, weights = [step for step, _ in self.steps], [weight for _, weight in self.steps]
        for _ in range(2 * STEPS if self._rewrites.happens else STEPS):
            self.disk.fault = self._fault()
            action = self.random.choices(actions, weights)[0]
            if self._rewrites.is_due():
                action = self.rewrite
            self.trace.note(action.__name__)
            try:
                action()
            except Crashed:
                self.crash()
            except DiskFull:
                self.trace.note("the disk is full")  # tried again: the flight and the plan are still there
            except StorageError as error:
                self.trace.note("failed:", error)
                if self._flight is not None or self._unsynced:  # a commit failed, or a sync: the bookie stops
                    self.crash()
        self.disk.crash_at = None
        self.restart()
        self.storage.close()
        self.end()

    def end(self) -> None:
        check_rot(self.books, self.disk, self.random, self._reopen)

    def _fault(self) -> Callable[[str, str], StorageError | None] | None:
        return self._refuse if self._flaky else None

    def _refuse(self, operation: str, path: str) -> StorageError | None:
        if operation in ("write", "sync", "sync_dir") and self.random.random() < self._flaky:
            return (DiskFull if operation == "write" and self.random.random() < 0.5 else StorageError)("simulated")
        return None

    # What clients do.

    def _entry(self, ledger: int, entry: int) -> bytes:
        size = self.random.choice((0, 3, 40, 200, 200, 1500))
        return ENTRY_HEADER.pack(ledger, entry, entry - 1, size) + self.random.randbytes(size)

    def _new_id(self, book: LedgerModel) -> int:
        if book.entries and self.random.random() < 0.15:
            return self.random.choice(list(book.entries))
        last = max(book.entries, default=-1)
        return min(
            (1 << 62) + 9, last + self.random.choice((1, 1, 1, 1, 2, 3, 5000 if self.random.random() < 0.1 else 1))
        )

    def _record_add(self, ledger: int, entry: int, data: bytes) -> None:
        self.trace.note("  added", ledger, entry, len(data))
        self._staged_adds.append((ledger, entry, self.books[ledger].add(entry, data)))

    def add_run(self) -> None:
        ledgers = [self.random.choice(IDS)] if self.random.random() < 0.7 else list(IDS)
        frames: list[tuple[int, int, bytes]] = []
        for _ in range(self.random.randint(1, 25)):
            ledger = self.random.choice(ledgers)
            ahead = [entry for other_ledger, entry, _ in frames if other_ledger == ledger]
            entry = ahead[-1] + 1 if ahead and self.random.random() < 0.9 else self._new_id(self.books[ledger])
            frames.append((ledger, entry, self._entry(ledger, entry)))
        data = b"".join(v2.AddFrame(ledger, entry, key_of(ledger), body).encode() for ledger, entry, body in frames)
        run, stop = scan_adds(data, 0, len(data), 1 << 20)
        assert stop == len(data)
        is_refused = {ledger: self._refuses(ledger) for ledger in IDS}
        for (ledger, entry, body), code in zip(frames, self.storage.add_run(data, run), strict=True):
            expect(code, Code.FENCED if is_refused[ledger] else Code.OK, "add", ledger, entry)
            if code == Code.OK:
                self._record_add(ledger, entry, body)

    def _refuses(self, ledger: int) -> bool:
        return self.books[ledger].fenced or self.books[ledger].deleting

    def add_one(self) -> None:
        """Add an entry as recovery does, which passes the fence."""
        ledger = self.random.choice(IDS)
        entry = self._new_id(self.books[ledger])
        body = self._entry(ledger, entry)
        code = self.storage.add(ledger, entry, key_of(ledger), body, recovery=True)
        expect(code, Code.FENCED if self.books[ledger].deleting else Code.OK, "recovery add", ledger, entry)
        if code == Code.OK:
            self._record_add(ledger, entry, body)

    def fence(self) -> None:
        ledger = self.random.choice(IDS)
        book = self.books[ledger]
        code = self.storage.fence(ledger, key_of(ledger))
        self.trace.note("  fenced", ledger, code)
        expect(code, absent(book) if book.deleting else Code.OK, "fence", ledger)
        if code == Code.OK:
            book.fenced = book.exists = True
            if self.storage.staged:
                self._staged_fences.append(ledger)
            else:
                book.fence_promised = True

    def write_lac(self) -> None:
        """Send an explicit LAC as a writer does, or a late one again."""
        ledger = self.random.choice(IDS)
        book, lac = self.books[ledger], self.random.randint(0, 40)
        code = self.storage.write_lac(ledger, key_of(ledger), lac_body(ledger, lac))
        self.trace.note("  confirmed", ledger, lac, code)
        no = absent(book) if book.deleting else Code.NO_LEDGER
        expect(code, Code.OK if book.exists and not book.deleting else no, "explicit LAC", ledger)
        if code == Code.OK:
            book.lac = max(book.lac, lac)
            if self.storage.staged:
                self._staged_lacs.append((ledger, book.lac))
            elif under_way := [*self._unsynced, *([self._flight] if self._flight else [])]:
                under_way[-1].lacs.append((ledger, book.lac))
            else:
                book.durable_lac = book.lac

    def wrong_key(self) -> None:
        ledger = self.random.choice(IDS)
        if self.books[ledger].exists and not self.books[ledger].deleting:
            expect(self.storage.fence(ledger, master_key(b"guess")), Code.UNAUTHORIZED, "wrong key", ledger)
            code = self.storage.write_lac(ledger, master_key(b"guess"), lac_body(ledger, 50))
            expect(code, Code.UNAUTHORIZED, "explicit LAC with a wrong key", ledger)

    # What the bookie does.

    def commit(self) -> None:
        if self._flight is None and self.storage.staged:
            self._flight = Flight(self.storage.take(), self._staged_adds, self._staged_fences, self._staged_lacs)
            self._staged_adds, self._staged_fences, self._staged_lacs = [], [], []
            return
        if self._flight is not None and self._defers and self.random.random() < 0.6:
            self.storage.write(self._flight.commit)
            self._unsynced.append(self._flight)
            self._flight = None
            return
        if self._flight is not None:
            self.storage.commit(self._flight.commit)
            self._unsynced.append(self._flight)
            self._flight = None
        elif self._unsynced:
            self.storage.sync()
        self._promise()

    def _promise(self) -> None:
        """Hold the storage to all that was written: it is on the disk."""
        for flight in self._unsynced:
            self.trace.note("  promised", len(flight.adds), "adds, fences of", flight.fences)
            for ledger, entry, version in flight.adds:
                book = self.books[ledger]
                if entry in book.entries:
                    self.promise_count += 1
                    book.entries[entry].durable_version = max(book.entries[entry].durable_version, version)
            for ledger in flight.fences:
                self.books[ledger].fence_promised = True
            for ledger, lac in flight.lacs:
                self.books[ledger].durable_lac = max(self.books[ledger].durable_lac, lac)
        self._unsynced = []

    def upkeep(self) -> None:
        """Take one step of a checkpoint or a collection."""
        if self._plan is None:
            if self.random.choices((True, True, False), (5, 2, 3))[0]:
                self._plan = self.storage.checkpoints.begin()
            else:
                self._begin_collect()
        elif not self._is_plan_written:
            try:
                self.write_plan(self._plan)
            except StorageError as error:
                self._judge_refusal(self._plan, error)
                self._plan = None
                return
            self._is_plan_written = True
        else:
            self._finish(self._plan)

    def rewrite(self) -> None:
        self._plan = self._rewrites.step(self.storage, self._plan)

    def write_plan(self, plan: CheckpointPlan) -> None:
        self.storage.checkpoints.write(plan)

    def _judge_refusal(self, plan: CheckpointPlan, error: StorageError) -> None:
        with self.disk.undisturbed():
            spare_bytes = self.disk.open(SPARE).size() if self.disk.exists(SPARE) else 0
        is_refused = plan.table is None and isinstance(error, DiskFull) and not self._flaky
        if is_refused and spare_bytes >= len(plan.state.encode()):
            raise Violation("a full disk refused to delete ledgers, though room was kept for it")

    def _begin_collect(self) -> None:
        ledger_ids = self.storage.ledger_ids()
        live = [ledger for ledger in IDS if self.random.random() < 0.8]
        self._plan = self.storage.checkpoints.begin_collect(ledger_ids, live)
        state = self._plan.state
        # What an earlier plan would have forgotten may be on the disk although its write failed, at its last sync.
        self._forgetting |= {n for n in IDS if n not in state.deleted and n not in state.ledgers}
        for ledger in self._plan.deleted:
            self.books[ledger].deleting = True

    def _finish(self, plan: CheckpointPlan) -> None:
        finished(self.storage.checkpoints.finish(plan))
        self._plan, self._is_plan_written = None, False
        self._forgetting.clear()
        for ledger in IDS:
            if self.books[ledger].deleting:
                self.books[ledger].is_gone = True
                if ledger not in plan.state.deleted and ledger not in plan.state.ledgers:
                    self._forget(ledger)
        self.storage.checkpoints.sweep()

    def _forget(self, ledger: int) -> None:
        """Begin a deleted ledger anew: its id may be used again."""
        self.books[ledger] = LedgerModel()
        self._staged_adds = [add for add in self._staged_adds if add[0] != ledger]
        self._staged_fences = [fence for fence in self._staged_fences if fence != ledger]
        self._staged_lacs = [lac for lac in self._staged_lacs if lac[0] != ledger]
        for flight in [*self._unsynced, *([self._flight] if self._flight else [])]:
            flight.adds = [add for add in flight.adds if add[0] != ledger]
            flight.fences = [fence for fence in flight.fences if fence != ledger]
            flight.lacs = [lac for lac in flight.lacs if lac[0] != ledger]

    def look(self) -> None:
        ledger = self.random.choice(IDS)
        check_reads(self.storage, ledger, self.books[ledger], self.random)
        check_lac(self.storage, ledger, self.books[ledger])
        bare = sum(self.storage.last_entry(each) == NO_ENTRY for each in self.storage.ledger_ids())
        if self.storage.fences_without_entries != bare:
            raise Violation(f"{bare} ledgers have no entry, not {self.storage.fences_without_entries}")

    # What goes wrong, and what must be true then.

    def crash_soon(self) -> None:
        self.disk.crash_at = self.disk.operations + self.random.randint(1, 12)

    def crash(self) -> None:
        self._reboot()
        self._again()

    def fill_up(self) -> None:
        """Fill the disk, or give it space again."""
        usage = self.disk.usage(LEDGER_DIR)
        self.disk.capacity = usage.total - usage.free if usage.total == PLENTY else PLENTY

    def restart(self) -> None:
        """Stop in order, with space for the checkpoint, and start again."""
        self.disk.fault, self.disk.capacity = None, PLENTY
        if self._flight is not None:
            self.commit()
        self.storage.close()
        self._unsynced = []
        self._staged_adds, self._staged_fences, self._staged_lacs = [], [], []
        for book in self.books.values():
            for versions in book.entries.values():
                versions.durable_version = len(versions.payloads) - 1
            book.fence_promised, book.durable_lac = book.fenced, book.lac
        self._again()

    def _again(self) -> None:
        while True:
            self._flight = self._plan = None
            self._is_plan_written = False
            self._rewrites.crashed()
            self._staged_adds, self._staged_fences, self._staged_lacs = [], [], []
            self.storage = self._open()
            self._promise()  # a start syncs what the last process wrote
            try:
                for ledger in IDS:
                    self._settle(ledger)
                self._forgetting.clear()
                return
            except Crashed:
                self._reboot()

    def _settle(self, ledger: int) -> None:
        """Compare a ledger with its model after a restart; what is read is what must stay from now on."""
        book = self.books[ledger]
        here = ledger in self.storage.ledger_ids()
        if book.is_gone and here:
            raise Violation(f"deleted ledger {ledger} is back")
        if book.deleting and not here:
            self._probe_deleted(ledger, book)
            return
        book.deleting = False
        for entry, versions in list(book.entries.items()):
            code, data = self.storage.read(ledger, entry)
            if code == Code.OK and data in versions.payloads[max(0, versions.durable_version) :]:
                book.entries[entry] = Versions([data], 0)
            elif versions.durable_version < 0 and code in (Code.NO_ENTRY, Code.NO_LEDGER):
                del book.entries[entry]
            else:
                raise Violation(f"{ledger}:{entry} was promised and is {Code(code).name}")
        self._settle_lac(ledger, book)
        book.exists, book.fenced = here, here and not self._takes_an_add(ledger)
        if book.fence_promised and not book.fenced:
            raise Violation(f"the fence of {ledger} is lost")
        book.fence_promised = book.fenced

    def _settle_lac(self, ledger: int, book: LedgerModel) -> None:
        body = self.storage.explicit_lac(ledger)
        lac = NO_ENTRY if body is None else int.from_bytes(body[8:16], "big")
        if not book.durable_lac <= lac <= book.lac or (body is not None and body != lac_body(ledger, lac)):
            raise Violation(f"the explicit LAC of {ledger} is {lac}, promised was {book.durable_lac}")
        book.lac = book.durable_lac = lac

    def _probe_deleted(self, ledger: int, book: LedgerModel) -> None:
        if ledger not in self._forgetting and (book.has_promises or book.is_gone):
            book.is_gone = True
            expect(self.storage.fence(ledger, key_of(ledger)), Code.NO_LEDGER, "fence of a deleted ledger", ledger)
            return
        self.books[ledger] = LedgerModel()
        if not self._takes_an_add(ledger):
            self.books[ledger] = LedgerModel(deleting=True, is_gone=True)

    def _takes_an_add(self, ledger: int) -> bool:
        """Ask in the way a writer does: with the newest version of an entry, or with a first entry."""
        versions = self.books[ledger].entries
        entry, entry_versions = next(iter(versions.items())) if versions else (0, Versions([self._entry(ledger, 0)]))
        code = self.storage.add(ledger, entry, key_of(ledger), entry_versions.payloads[-1])
        if code == Code.OK:
            self._record_add(ledger, entry, entry_versions.payloads[-1])
        return code == Code.OK


@dataclass(frozen=True)
class StorageOutcome(Outcome):
    """How one life of a storage ended."""

    crashes: int = 0


def outcome(life: StorageLife, seed: int) -> StorageOutcome:
    """Live a life, and say how it ended."""
    violation = None
    try:
        life.live()
    except Violation as error:
        violation = str(error)
    except StorageError as error:
        violation = f"refused: {error}"
    trace = life.trace
    lines = tuple(trace.lines or ())
    return StorageOutcome(seed, violation, life.promise_count, trace.fingerprint, lines, crashes=life.crashes)


def run(seed: int, *, keep_trace: bool = False) -> StorageOutcome:
    """One life."""
    return outcome(StorageLife(seed, keep_trace=keep_trace), seed)
