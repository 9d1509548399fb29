"""A simulated life of a storage with two journals and two ledger folders: one fails, is lost or comes back old.

Beside the promises of ``storage.py``: what a lost or failed disk had is never denied, its ledgers are in limbo and no
others, over all crashes; a disk that is behind is not believed; what is in limbo comes back from the other replicas.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan
from tallystick.bookkeeper.bookie.ledger_folders import FolderFailure
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.state import UNKNOWN
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.codec.steps import finished
from tallystick.errors import StorageError
from tallystick.sim.disk import Crashed
from tallystick.sim.disk_content import Node
from tallystick.sim.folder_disk import FOLDER_BYTES, FolderDisk
from tallystick.sim.invariants import Violation
from tallystick.sim.storage import StorageLife, StorageOutcome, outcome
from tallystick.sim.storage_model import IDS, LEDGER_DIR, SETTINGS, Versions, check_reads, key_of

JOURNALS = ("/journal0/tally", "/journal1/tally")
LEDGERS = (LEDGER_DIR, "/more/ledgers")
FOLDERS = StorageFolders(JOURNALS, LEDGERS)


class FoldersLife(StorageLife):
    """``limbo`` are the ledgers that may be in limbo: those of which a lost disk had something."""

    disk: FolderDisk

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.limbo: set[int] = set()
        self._lost: tuple[str, ...] = ()
        self._old: dict[str, tuple[int, dict[str, Node]]] = {}  # journals as they once were, after how many rejoins
        self._rejoins = 0
        self._losses = 0
        self._sent: dict[tuple[int, int], set[bytes]] = {}  # all versions of each entry
        super().__init__(seed, keep_trace=keep_trace)
        self.steps += [
            (self.lose_disk, 1), (self.break_folder, 2), (self.refill, 6), (self.keep_old, 3), (self.old_journal, 1),
            (self.change_room, 3),
        ]  # fmt: skip

    def _record_add(self, ledger: int, entry: int, data: bytes) -> None:
        self._sent.setdefault((ledger, entry), set()).add(data)
        super()._record_add(ledger, entry, data)

    def make_disk(self, rng: random.Random) -> FolderDisk:
        return FolderDisk(rng)

    def _reopen(self) -> Storage:
        return Storage.open(self.disk, FOLDERS, SETTINGS, clock=self.clock, random=self.random, lost=self._lost)

    def _open(self) -> Storage:
        """Start as an operator does, without a folder that fails."""
        while True:
            try:
                return self._reopen()
            except Crashed:
                self._reboot()
            except StorageError:
                if not self.disk.broken:
                    raise
            try:
                self.disk.kill()
                failed = tuple(self.disk.broken)
                storage = Storage.open(
                    self.disk, FOLDERS, SETTINGS, clock=self.clock, random=self.random, failed=failed
                )
                self.limbo |= set(storage.limbo)
                storage.checkpoint()
                return storage
            except Crashed:
                self._reboot()

    def _reboot(self) -> None:
        super()._reboot()
        self.disk.fault = self.disk.refuse

    def _refuse(self, operation: str, path: str) -> StorageError | None:
        error = self.disk.refuse(operation, path)
        if error is not None or (
            self.disk.broken and path.startswith(LEDGERS)
        ):  # both folders are more than it can bear
            return error
        return super()._refuse(operation, path)

    def _fault(self) -> Callable[[str, str], StorageError | None]:
        return self._refuse

    def restart(self) -> None:
        if self.disk.broken:
            self.limbo |= set(IDS)  # what is placed there by the last checkpoint is in limbo, too
        super().restart()
        self.disk.fault = self.disk.refuse

    def end(self) -> None:
        """What is in limbo is no ground for a judge of rot."""

    # What happens to disks.

    def change_room(self) -> None:
        """Let a ledger folder be nearly full, or not."""
        folder = self.random.choice(LEDGERS)
        self.disk.free[folder] = self.random.choice((10, FOLDER_BYTES // 2, FOLDER_BYTES))
        for path, number in self.storage.folders.numbers().items():
            self.storage.folders.set_full(number, self.disk.usage(path).free < FOLDER_BYTES // 10)

    def break_folder(self) -> None:
        """A ledger folder fails under the bookie."""
        if not (self.disk.broken or self.storage.folders.failed) and self._losses < 2 and self._plan is None:
            self._losses += 1
            path = self.random.choice(LEDGERS)
            self.disk.broken.add(path)
            self.trace.note("  broken", path)
            self._note_limbo(self.storage.folders.numbers()[path])

    def _note_limbo(self, folder: int) -> None:
        self.limbo |= set(self.storage.ledgers_in(folder))

    def lose_disk(self) -> None:
        """The machine stops, and one disk comes back empty: a start is refused, and the bookie rejoins."""
        if self.disk.broken or self.storage.folders.failed or self._losses >= 2:
            return
        self._losses += 1
        path = self.random.choice((*JOURNALS, *LEDGERS))
        self._note_lost(path)
        self._power_off()
        self.disk.replace(path, {})
        self._rejoin(path)

    def keep_old(self) -> None:
        """Copy a journal's disk, as an operator may."""
        path = self.random.choice(JOURNALS)
        self._old[path] = self._rejoins, self.disk.content(path)

    def old_journal(self) -> None:
        """A journal comes back as it once was: refused by the state, or by what the metadata has: how often the bookie
        was started, which a rejoin counts, and the positions. Those of a journal that came back empty begin anew."""
        if not self._old or self.disk.broken or self.storage.folders.failed or self._losses >= 2:
            return
        path, (rejoins, content) = self.random.choice(list(self._old.items()))
        reported = self.storage.positions
        self._note_lost(path)
        self._power_off()
        if self.disk.content(path) == content:
            self._again()
            return
        self._losses += 1
        self.disk.replace(path, content)
        try:
            with self.disk.undisturbed():
                positions = self._reopen().positions
        except StorageError:
            positions = None
        self.disk.kill()
        lags = positions is None or any(mine < theirs for mine, theirs in zip(positions, reported, strict=True))
        if lags or rejoins < self._rejoins:
            self.disk.replace(path, {})
            self._rejoin(path)
        else:  # it has all that was promised
            self._again()

    def _note_lost(self, path: str) -> None:
        # Of these memory is ahead of the disk.
        self.limbo |= {ledger for ledger, book in self.books.items() if book.deleting or not book.has_promises}
        if path in LEDGERS:
            self._note_limbo(self.storage.folders.numbers()[path])
        else:
            journal = JOURNALS.index(path)
            for ledger in IDS:
                if self.storage.journal_of(ledger) == journal:
                    self.limbo.add(ledger)

    def _power_off(self) -> None:
        self.crashes += 1
        self.trace.note("the power is lost")
        self.disk.power_loss()
        self.disk.fault, self._unsynced = self.disk.refuse, []
        self._flight = self._plan = None
        self._is_plan_written = False

    def _rejoin(self, path: str) -> None:
        """A start without what was on a disk: refused, but by a rejoin."""
        self.trace.note("  lost", path)
        self.disk.crash_at = None
        try:
            self._reopen()
        except StorageError:
            pass
        else:
            if path in JOURNALS:
                raise Violation(f"started: without {path}")
        self.disk.kill()
        self._rejoins += 1
        self._lost = (path,)
        self.storage = self._reopen()
        self._lost = ()
        for ledger in IDS:
            book = self.books[ledger]
            if book.deleting and ledger not in (*self.storage.ledger_ids(), *self._deleted()):
                self._forget(ledger)  # no metadata names it, and what the bookie had of it was in that journal alone
            elif self.storage.may_lack(ledger) and (book.exists or ledger in self.storage.limbo) and not book.deleting:
                self.storage.enter_limbo(ledger, key_of(ledger), UNKNOWN)
        self.storage.commit(self.storage.take()) if self.storage.staged else None
        self.storage.checkpoint()
        self._again()

    def _deleted(self) -> list[int]:
        return [ledger for ledger in IDS if ledger in self.storage.deleted_ids()]

    def refill(self) -> None:
        """Fetch what is missing of a ledger in limbo from the other replicas."""
        self.disk.fault = self.disk.refuse  # a commit that fails here would be no end of the bookie to ``live``
        for ledger in list(self.storage.limbo):
            book = self.books[ledger]
            if self._flight is not None or self._plan is not None or self.random.random() < 0.5:
                continue
            if book.deleting:
                continue
            for entry, versions in book.entries.items():
                if self.storage.add(ledger, entry, key_of(ledger), versions.payloads[-1], recovery=True) != Code.OK:
                    raise Violation(f"{ledger}:{entry} could not be stored in limbo")
                self._record_add(ledger, entry, versions.payloads[-1])
            if self.storage.staged:
                self.commit()
                self.storage.commit(self._flight.commit) if self._flight else None
                self._unsynced += [self._flight] if self._flight else []
                self._flight = None
                self._promise()
            self.storage.filled((ledger,))
            if self.storage.staged:
                self.storage.commit(self.storage.take())
            self.limbo.discard(ledger)
            book.fenced, book.fence_promised = self.storage.is_fenced(ledger), False
            self.trace.note("  filled", ledger)

    # What must be true then.

    def write_plan(self, plan: CheckpointPlan) -> None:
        while True:
            try:
                self.storage.checkpoints.write(plan)
                self._plan = plan
                return
            except FolderFailure as failure:
                self._note_limbo(failure.number)
                self.trace.note("  failed folder", failure.number)
                self.storage.checkpoints.run(finished(self.storage.checkpoints.losing(failure.number)))
                self._check_limbo()
                for book in self.books.values():
                    book.is_gone = book.is_gone or book.deleting  # that is durable by now
                plan = self.storage.checkpoints.again(plan)

    def _check_limbo(self) -> None:
        if others := set(self.storage.limbo) - self.limbo:
            raise Violation(f"in limbo: ledgers {sorted(others)} lost nothing")

    def look(self) -> None:
        ledger = self.random.choice(IDS)
        self._check_limbo()
        if ledger in self.storage.limbo or self.disk.broken:
            self._look_in_limbo(ledger)
        else:
            check_reads(self.storage, ledger, self.books[ledger], self.random)

    def _look_in_limbo(self, ledger: int) -> None:
        if self.books[ledger].deleting:
            return
        for entry, versions in self.books[ledger].entries.items():
            self._judge(ledger, entry, versions)

    def _judge(self, ledger: int, entry: int, versions: Versions) -> None:
        code, data = self.storage.read(ledger, entry)
        if code == Code.OK:
            if data not in self._sent.get((ledger, entry), ()):
                raise Violation(f"{ledger}:{entry} reads as another entry")
        elif self.storage.limbo.code(ledger, code) in NO_CODES and versions.durable_version >= 0:
            raise Violation(f"denied: {ledger}:{entry} was promised")

    def _settle(self, ledger: int) -> None:
        book = self.books[ledger]
        self._check_limbo()
        if ledger not in self.storage.limbo or (book.deleting and ledger not in self.storage.ledger_ids()):
            try:
                super()._settle(ledger)
            except Violation as violation:
                raise Violation(f"lost: {violation}") from None
            return
        if book.is_gone and ledger in self.storage.ledger_ids():
            raise Violation(f"lost: the deletion of {ledger}")
        for entry, versions in book.entries.items():
            self._judge(ledger, entry, versions)
        body = self.storage.explicit_lac(ledger)
        book.lac = book.durable_lac = -1 if body is None else int.from_bytes(body[8:16], "big")
        book.deleting, book.exists = False, ledger in self.storage.ledger_ids()
        book.fenced = book.fence_promised = self.storage.is_fenced(ledger)


def run(seed: int, *, keep_trace: bool = False) -> StorageOutcome:
    """One life."""
    return outcome(FoldersLife(seed, keep_trace=keep_trace), seed)
