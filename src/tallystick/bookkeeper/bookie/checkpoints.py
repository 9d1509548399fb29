"""The checkpoints of a storage: when one is due, what each of them does, and what is read from where afterwards.

``checkpoint.py`` writes the durable steps; this module has what the loop does between them::

    begin, collecting, replacing ─► write (thread) ─► enter, finish ─► sweep (thread)

Beside them logs are rewritten (``compaction.py``): ``begin_compaction``, which must not come between ``begin`` and
``finish``, its own steps, and in the end ``replacing``.

All methods are for the loop but ``write`` and ``sweep``, of which a thread runs one at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tallystick.bookkeeper.bookie.checkpoint import CheckpointPlan, CheckpointResult, CheckpointWriter, ReclaimedSpace
from tallystick.bookkeeper.bookie.collector import groups_to_rewrite, logs_without_a_ledger, room_to_rewrite
from tallystick.bookkeeper.bookie.compaction import Compaction, UnreadableLog
from tallystick.bookkeeper.bookie.ledger_folders import FolderFailure
from tallystick.bookkeeper.bookie.log_index import remove_log
from tallystick.bookkeeper.bookie.memtable import MemTable
from tallystick.bookkeeper.bookie.places import Mark
from tallystick.bookkeeper.bookie.restart import StorageParts
from tallystick.bookkeeper.bookie.settings import StorageSettings
from tallystick.bookkeeper.bookie.state import DeletedLedger, State
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS
from tallystick.bookkeeper.wire.values import NO_ENTRY, LedgerId
from tallystick.codec.steps import Steps, finished
from tallystick.errors import StorageError
from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk

_PART_PIECES = 1000  # into the index at once: a millisecond or two


class Checkpoints:
    """Plan the checkpoints of a storage, one after another, and enter what they wrote into the index."""

    def __init__(
        self,
        disk: Disk,
        settings: StorageSettings,
        clock: Clock,
        parts: StorageParts,
        *,
        taken_commit: Callable[[], Mark],
        newest_commit: Callable[[], int],
    ) -> None:
        """``taken_commit`` gives the last commit that was taken, ``newest_commit`` the number of the commit with all
        that is staged."""
        self._disk, self._settings, self._clock = disk, settings, clock
        self._journals, self._ledgers, self._logs = parts.journals, parts.ledgers, parts.logs
        self._tables, self.folders = parts.tables, parts.folders
        self._taken_commit, self._newest_commit = taken_commit, newest_commit
        self._writer = CheckpointWriter(disk, settings, parts.folders)
        self._mark = parts.mark  # of the state that is on the disk
        self._result = CheckpointResult()  # by the checkpoint that is between ``write`` and ``finish``
        self._entering: Iterator[None] = iter(())  # its pieces into the index
        self._garbage: list[int] = []  # logs whose files can be deleted
        self.reclaimed_space = ReclaimedSpace()
        self.damaged: list[int] = []  # logs that could not be read: they are not rewritten before the next start

    @property
    def up_to_date(self) -> bool:
        """Return whether a restart would replay nothing of the journal, and rebuild no index."""
        return self._newest_commit() == self._mark.number and not self._logs.rebuilt

    @property
    def due(self) -> bool:
        """Return whether memory or the journal holds enough for a checkpoint."""
        settings = self._settings
        if self._tables.active.bytes >= settings.memtable_bytes:
            return True
        # The segment that is written now may be longer than that alone; no checkpoint makes it shorter.
        return self._journals.used_bytes >= settings.journal_bytes and not self.up_to_date

    def begin(self) -> CheckpointPlan:
        """Set apart what is in memory. Next: ``write`` on a thread, then ``finish``; ``begin`` again if that fails."""
        log = self._ledgers.next_log
        self._ledgers.next_log += max(1, len(self.folders.in_use))
        frozen, mark = self._tables.freeze(self._taken_commit()), self._tables.mark
        ledgers = self._by_folder(frozen)
        state = self._state(mark, self._ledgers.deleted.copy())
        return CheckpointPlan(frozen, state, mark, log, ledgers=ledgers)

    def _by_folder(self, table: MemTable) -> dict[int, list[LedgerId]]:
        """Return the ledgers with entries in a table by the folder of each. One whose folder takes nothing new, and one
        that has none yet, gets one."""
        by_folder, places = dict[int, list[LedgerId]](), self._ledgers.places
        if places.is_single:
            return {0: list(table.ledgers)}
        choose: Callable[[], int] | None = None  # by the room that there is now, which takes a system call a folder
        for ledger in table.ledgers:
            if ledger not in self._ledgers.alive:  # it was deleted since
                continue
            place = places.of(ledger)
            if not self.folders.takes(place.folder):
                choose = choose or self.folders.chooser()
                place = place.moved(choose())
                places.put(ledger, place)
            by_folder.setdefault(place.folder, []).append(ledger)
        return by_folder

    def groups_to_rewrite(self) -> Steps[list[tuple[int, ...]]]:
        """In steps: choose logs that are mostly dead, and small ones; those of a group are in one folder, and make one
        new log."""
        groups = list[tuple[int, ...]]()
        for folder in list(self.folders.in_use):  # one may fail meanwhile
            logs = [
                log
                for log in self._logs.logs.values()
                if log.id not in self.damaged and self.folders.folder_of(log.id) == folder
            ]
            groups += yield from groups_to_rewrite(logs, self._ledgers.alive, self._settings)
        return groups

    def lacks_room(self, victims: Sequence[int]) -> Steps[str]:
        """In steps: return why the disk has no room for a log with what is live in these, "" if it has: as much as the
        next checkpoint may need must stay free beside it."""
        logs = [self._logs.logs[log] for log in victims if log in self._logs.logs]
        if not logs:
            return ""
        folder = self.folders.folder_of(logs[0].id)  # they may be deleted meanwhile
        needed = (yield from room_to_rewrite(logs, self._ledgers.alive)) + self._settings.memtable_bytes
        with self.folders.watching(folder):
            free = self._disk.usage(self.folders.path(folder)).free
        return "" if free >= needed else f"{needed} bytes must be free for a while, and {free} are"

    def begin_compaction(self, victims: Sequence[int]) -> Compaction:
        """Begin to rewrite logs of one folder. No checkpoint may be under way: what it writes must be newer than what
        is moved."""
        log = self._ledgers.next_log
        self._ledgers.next_log += 1
        there = [victim for victim in victims if victim in self._logs.logs]
        folder = self.folders.folder_of(there[0]) if there else self.folders.in_use[0]
        self.folders.put(log, folder)
        watching = partial(self.folders.watching, folder)
        return Compaction(self._disk, self.folders.path(folder), log, there, self._settings.chunk_bytes, watching)

    def choosing(self, compaction: Compaction) -> Steps[None]:
        """In steps: choose what a loaded compaction moves."""
        return compaction.choose(self._ledgers.alive)

    def replacing(self, compaction: Compaction) -> CheckpointPlan:
        """Plan the last step of a compaction that has copied all: its log takes the place of those it was made of."""
        rewritten = tuple(log for log in compaction.victims if log in self._logs.logs)  # others were deleted meanwhile
        state, moved = self._state(self._mark, self._ledgers.deleted.copy()), compaction.new_log
        if moved is not None and not self._is_in_use(moved[0].id):
            moved = None  # its folder failed meanwhile, and nothing is read there
        return CheckpointPlan(None, state, self._mark, moved=moved, rewritten=rewritten)

    def unreadable(self, error: UnreadableLog) -> bool:
        """A log could not be rewritten. Returns False if it is deleted, so that this says nothing of the disk; else it
        is not tried again before it is repaired, or the next start."""
        if error.log not in self._logs.logs:
            return False
        self.damaged.append(error.log)
        return True

    def begin_collect(self, candidates: Iterable[LedgerId], live: Collection[LedgerId]) -> CheckpointPlan:
        """Do all steps of ``collecting`` at once."""
        return finished(self.collecting(candidates, live))

    def collecting(
        self, candidates: Iterable[LedgerId], live: Collection[LedgerId], *, ages: bool = True
    ) -> Steps[CheckpointPlan]:
        """In steps, between which a loop should have turns: delete those ``candidates`` that are not in ``live``, and
        the logs that nothing else is in. ``candidates`` gives each ledger when it is that one's turn.

        ``live`` also says which deleted ledgers need not be remembered: they exist again; and ``ages``, that the oldest
        need not. Only the state is written, for which room is kept: a full disk does not hinder it.
        """
        deleted = list[LedgerId]()
        for ledger in candidates:
            if ledger in self._ledgers.alive and ledger not in live:
                self._ledgers.delete(ledger, self._clock.wall_ms(), self._newest_commit())
                deleted.append(ledger)
                if not len(deleted) % STEP_LEDGERS:
                    yield
        yield from self._ledgers.given_up.bound(self._settings.given_up_memory_ledgers)
        forgettable = yield from self._forgettable(live, ages=ages)
        dead_logs = yield from logs_without_a_ledger(list(self._logs.logs.values()), self._ledgers.alive)
        remembered = self._ledgers.deleted.copy()
        for count, ledger in enumerate(forgettable, 1):
            remembered.pop(ledger, None)
            if not count % STEP_LEDGERS:
                yield
        state, forgotten = self._state(self._mark, remembered), tuple(forgettable)
        return CheckpointPlan(None, state, self._mark, dead_logs=dead_logs, deleted=tuple(deleted), forgotten=forgotten)

    def emptying(self, candidates: Iterable[LedgerId]) -> Steps[CheckpointPlan]:
        """In steps: drop all entries of fenced ledgers, and the logs that nothing else is in; the plan's ``emptied``
        has which. Those that have entries in memory stay as they are: a replay would bring these back.

        ``candidates`` gives each ledger when it is that one's turn. Only the state is written.
        """
        emptied = list[LedgerId]()
        for ledger in candidates:
            held_ledger = self._ledgers.alive.get(ledger)
            if held_ledger is not None and held_ledger.fenced and self._tables.last(ledger) == NO_ENTRY:
                self._ledgers.empty(ledger)
                emptied.append(ledger)
                if not len(emptied) % STEP_LEDGERS:
                    yield
        dead_logs = yield from logs_without_a_ledger(list(self._logs.logs.values()), self._ledgers.alive)
        state = self._state(self._mark, self._ledgers.deleted.copy())
        return CheckpointPlan(None, state, self._mark, dead_logs=dead_logs, emptied=tuple(emptied))

    def _forgettable(self, live: Collection[LedgerId], *, ages: bool) -> Steps[list[LedgerId]]:
        """Find, in steps, the deleted ledgers that need to be remembered no longer."""
        settings, again = self._settings, dict[LedgerId, None]()
        for count, ledger in enumerate(live, 1):
            if self._ledgers.is_forgettable(ledger, self._mark.number):
                again[ledger] = None
            if not count % STEP_LEDGERS:
                yield
        if not ages:
            return list(again)
        oldest_ms = self._clock.wall_ms() - settings.deleted_memory_ms
        most = settings.deleted_memory_ledgers
        return [*again, *(yield from self._ledgers.forgettable(again, oldest_ms, most, self._mark.number))]

    def losing(self, folder: int) -> Steps[CheckpointPlan]:
        """In steps: a ledger folder failed. Nothing that it had is read any more, and its ledgers are in limbo, which
        the plan makes durable in the other folders."""
        self.folders.fail(folder)
        ledgers, places = list(self._ledgers.places.in_folder(folder)), self._ledgers.places
        for count, ledger in enumerate(ledgers, 1):  # before anything is missing
            self._ledgers.limbo.enter((ledger,))
            places.put(ledger, places.of(ledger).left(folder))
            if not count % STEP_LEDGERS:
                yield
        logs = {log for log in self._logs.logs if self.folders.folder_of(log) == folder}
        for ledger in ledgers:
            # Who looked at its entries until now has seen what is gone.
            self._ledgers.limbo.enter([ledger])
            self._ledgers.drop(ledger, logs, self._tables.last(ledger))
            yield
        for log in logs:
            with contextlib.suppress(StorageError):
                self._logs.remove(log)
            self.folders.forget(log)
        self._garbage = [log for log in self._garbage if self.folders.folder_of(log) != folder]
        self.folders.limbo_era += 1  # the journal may say by now that some of them left limbo
        return CheckpointPlan(None, self._state(self._mark, self._ledgers.deleted.copy()), self._mark)

    def again(self, plan: CheckpointPlan) -> CheckpointPlan:
        """Return a plan whose ``write`` failed by a ledger folder that is used no more, for those that are left."""
        if plan.table is not None:
            return self.begin()
        moved = plan.moved if plan.moved is not None and self._is_in_use(plan.moved[0].id) else None
        rewritten = tuple(log for log in plan.rewritten if log in self._logs.logs)
        state = self._state(self._mark, self._ledgers.deleted.copy())
        return CheckpointPlan(
            None, state, self._mark, moved=moved, rewritten=rewritten, deleted=plan.deleted, emptied=plan.emptied
        )

    def _is_in_use(self, log_id: int) -> bool:
        """Return whether the folder of a log has not failed."""
        return self.folders.folder_of(log_id) in self.folders.in_use

    def _state(self, mark: Mark, deleted: Mapping[LedgerId, DeletedLedger]) -> State:
        """Return what is to be stored; nobody changes ``deleted`` from now on."""
        marks, layout, ledgers = self._journals.marks(mark), self.folders.layout, self._ledgers
        logs = tuple(self._logs.logs)
        records, given_up = ledgers.records(), ledgers.given_up.copy()
        first = marks[0]
        state = State(
            first.mark, first.generation, ledgers.next_log, logs, records, deleted, ledgers.anchor, first.number
        )
        state = replace(
            state, given_up=given_up, explicit_lacs=ledgers.explicit_lacs.copy(), limbo=ledgers.limbo.copy()
        )
        return replace(state, layout=layout, journals=marks, places=ledgers.places.copy()) if layout.folders else state

    def enter(self) -> Iterator[None]:
        """Put what ``write`` wrote into the index, a part in each step.

        ``finish`` does the steps that are left, but a loop should have turns in between: there may be a piece of each
        of very many ledgers."""
        return self._entering

    def _parts(self, plan: CheckpointPlan, result: CheckpointResult) -> Iterator[None]:
        """Enter the pieces of the new log. Until ``finish`` all is read from where it was before all the same."""
        for log, pieces in (*(() if plan.moved is None else (plan.moved,)), *result.table_logs):
            self._logs.logs[log.id] = log
            for start in range(0, len(pieces), _PART_PIECES):
                part = pieces[start : start + _PART_PIECES]
                if plan.table is None:
                    yield from self._ledgers.move(log.id, part, plan.rewritten)
                else:
                    self._ledgers.enter(log.id, part)
                yield

    def finish(self, plan: CheckpointPlan) -> Steps[None]:
        """Read from what ``write`` wrote, and forget what it forgot. Next: ``sweep`` on a thread."""
        for _ in self._entering:
            pass
        result, self._result = self._result, CheckpointResult()
        self.reclaimed_space.count(plan, self._logs.logs)
        if plan.table is not None:
            self._tables.drop_frozen()
        self._mark = plan.mark
        for log_id in result.removed:
            self._logs.remove(log_id)
        self._garbage += result.removed
        self.damaged = [log for log in self.damaged if log not in result.removed]
        # Only now: an add to a ledger that is no longer remembered as deleted must not be dropped by a replay.
        yield from self._ledgers.forget_deleted(plan.forgotten)
        if plan.table is not None:
            yield from plan.table.clear()

    def write(self, plan: CheckpointPlan) -> None:
        """Make a checkpoint durable, then give its part of the journal free."""
        self._result = self._writer.write(plan)
        self._entering = self._parts(plan, self._result)
        if plan.table is not None:  # else a replay may have that a ledger left limbo before its log was damaged
            self._logs.write_rebuilt()
        self._journals.release(plan.mark)

    def sweep(self) -> tuple[str, ...]:
        """Delete the entry logs that nothing refers to any more, and keep room for the next state.

        Returns what could not be deleted and why; it is tried again at the next sweep.
        """
        undeleted_logs, reasons = list[int](), list[str]()
        while self._garbage:
            log = self._garbage.pop()
            try:
                remove_log(self._disk, self.folders.directory(log), log)
                self.folders.forget(log)
            except StorageError as error:
                undeleted_logs.append(log)
                reasons.append(str(error))
        self._garbage = undeleted_logs
        self.folders.reserve()
        return tuple(reasons)

    def run(self, plan: CheckpointPlan) -> None:
        """Do all steps of a checkpoint at once, when nothing else runs."""
        try:
            self.write(plan)
        except FolderFailure as failure:
            self.run(finished(self.losing(failure.number)))
            self.run(self.again(plan))
            return
        finished(self.finish(plan))
        self.sweep()

    def compact(self) -> None:
        """Do all steps of all compactions at once, when nothing else runs."""
        for group in finished(self.groups_to_rewrite()):
            victims = group
            while victims and not finished(self.lacks_room(victims)):
                compaction = self.begin_compaction(victims)
                try:
                    compaction.load()
                    finished(self.choosing(compaction))
                    while compaction.copy() is not None:
                        pass
                except UnreadableLog as error:
                    compaction.abandon()
                    self.unreadable(error)
                    victims = tuple(log for log in victims if log != error.log)
                    continue
                except FolderFailure as failure:
                    compaction.abandon()
                    self.run(finished(self.losing(failure.number)))
                    break
                except StorageError:
                    compaction.abandon()
                    raise
                self.run(self.replacing(compaction))
                break
