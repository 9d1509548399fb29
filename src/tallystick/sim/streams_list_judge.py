"""What the metadata has of a simulated stream, judged at each change: its list, its ledgers, its cursors, its notes.

It has promises S3, S4, S7 and S8 of ``streams_judge.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.store import Creation, Znode
from tallystick.bookkeeper.stream.expired import expired_in
from tallystick.bookkeeper.stream.names import StreamPaths
from tallystick.bookkeeper.wire import managed_ledgers
from tallystick.bookkeeper.wire import metadata as ledgers
from tallystick.bookkeeper.wire.stream_values import NO_LEDGER, Position, StreamInfo, StreamLedger
from tallystick.bookkeeper.wire.values import LedgerId, LedgerMetadata
from tallystick.codec.steps import finished
from tallystick.sim.invariants import OnViolation
from tallystick.sim.past_tree import NodeChange
from tallystick.sim.streams_cursor_judge import CursorHistory

NAME = "t/n/persistent/s"
PATHS = StreamPaths("/ledgers")

_LEDGER = re.compile(r"/ledgers((?:/\d+)+)/L(\d+)")
_NOTE = re.compile(re.escape(PATHS.going(NAME)) + r"(?:,[^/]+)?/(\d+)")  # of the stream's, or of a cursor's
_NONE = StreamInfo()


@dataclass(frozen=True)
class _Removed:
    """A ledger that was in the list. ``entries`` is None of one that was deleted before it was closed."""

    entries: int | None


class ListJudge:
    """``removed`` has the ledgers that were listed, with what they had."""

    def __init__(
        self,
        fail: OnViolation,
        cursors: Mapping[str, CursorHistory],
        most_entries: int,
        now: Callable[[], float],
    ) -> None:
        self._fail, self._cursors, self._most_entries, self._now = fail, cursors, most_entries, now
        self.info: StreamInfo | None = None  # None: there is no stream
        self.creations: dict[LedgerId, Creation] = {}  # of the ledgers that there are
        self._ledgers: dict[LedgerId, LedgerMetadata] = {}
        self._cursor_ledgers: dict[str, LedgerId] = {}
        self._notes: dict[str, LedgerId] = {}  # by path
        self._removed: dict[LedgerId, _Removed] = {}
        self._acked_ends: dict[LedgerId, int] = {}  # the last entry of each ledger that was acknowledged
        self._newest: LedgerId = NO_LEDGER  # that was ever listed
        self.may_be_deleted = False  # settable: somebody deletes the stream
        self.deletions = 0  # how often that was done
        self.was_terminated = False
        self.expired_up_to: Callable[[Position, Position], None] = lambda before, after: None  # settable

    # What is asked.

    @property
    def has_trimmed(self) -> bool:
        return any(removed.entries != 0 for removed in self._removed.values())

    def metadata(self, ledger: LedgerId) -> LedgerMetadata:
        """Returns that of a ledger that exists."""
        return self._ledgers[ledger]

    def was_trimmed(self, ledger: LedgerId) -> bool:
        return ledger in self._removed or self.info is None

    def has_expired(self, position: Position) -> bool:
        """Whether cursors pass over it."""
        return position.of_entry <= expired_in(self.info or _NONE)

    def closed_entries(self, after: Position) -> int:
        """Returns how many entries the closed ledgers of the list have behind a position."""
        rows = [row for row in (self.info or _NONE).ledgers if row.is_closed and row.ledger >= after.ledger]
        return sum(row.entries - (after.entry + 1 if row.ledger == after.ledger else 0) for row in rows)

    @property
    def open_ledger(self) -> LedgerId:
        """Returns the newest ledger, if it takes entries."""
        rows = (self.info or _NONE).ledgers
        return rows[-1].ledger if rows and not rows[-1].is_closed else NO_LEDGER

    def unneeded(self) -> list[LedgerId]:
        """Returns the closed ledgers of the list that no cursor needs. The newest one always stays."""
        rows = [row for row in (self.info or _NONE).ledgers[:-1] if row.is_closed]
        return [
            row.ledger
            for row in rows
            if all(cursor.needs(row.ledger, row.entries - 1, self._now()) is None for cursor in self._cursors.values())
        ]

    def leftovers(self) -> list[str]:
        """Returns what is there and belongs to nothing that is listed; for some time that is right."""
        kept = [each.ledger for each in (self.info or _NONE).ledgers] + list(self._cursor_ledgers.values())
        names = [f"ledger {ledger}" for ledger in self._ledgers if ledger not in kept]
        return names + [f"note of ledger {ledger}" for ledger in self._notes.values()]

    # What is told.

    def acknowledged(self, position: Position, text: str) -> None:
        if self._row(position.ledger) is None and position.ledger not in self._removed:
            self._fail("S1", f"{text}, in a ledger that was never listed")
        end = self._end(position.ledger)
        if end is not None and position.entry > end:
            self._fail("S3", f"{text}, and the ledger ends at {end}")
        terminated = (self.info or _NONE).terminated
        if terminated is not None and position.of_entry > terminated:
            self._fail("S3", f"{text}, and the stream was terminated at {terminated}")
        self._acked_ends[position.ledger] = max(self._acked_ends.get(position.ledger, -1), position.entry)

    def readable(self, position: Position, to: str) -> None:
        if self._row(position.ledger) is None and position.ledger not in self._removed and self.info is not None:
            self._fail("S5", f"{to} read {position} of a ledger that was never listed")
        end = self._end(position.ledger)
        if end is not None and position.entry > end:
            self._fail("S5", f"{to} read {position}, and the ledger ends at {end}")

    def _row(self, ledger: LedgerId) -> StreamLedger | None:
        return next((each for each in (self.info or _NONE).ledgers if each.ledger == ledger), None)

    def _end(self, ledger: LedgerId) -> int | None:
        """Returns the last entry of a closed ledger."""
        metadata = self._ledgers.get(ledger)
        if metadata is not None and metadata.is_closed:
            return metadata.last_entry
        removed = self._removed.get(ledger)
        return None if removed is None or removed.entries is None else removed.entries - 1

    def changed(self, changes: Sequence[NodeChange]) -> None:
        """A transaction changed nodes."""
        for path, _, after in changes:
            if (match := _LEDGER.fullmatch(path)) is not None:
                self._ledger_changed(int((match[1] + match[2]).replace("/", "")), after)
            elif (match := _NOTE.fullmatch(path)) is not None:
                self._note_changed(int(match[1]), path, after)
            elif path.startswith(PATHS.stream(NAME) + "/"):
                self._cursor_changed(path.rpartition("/")[2], after)
        for path, _, after in changes:
            if path == PATHS.stream(NAME):
                self._list_changed(None if after is None else _decode(after))
        self._settle()

    def _settle(self) -> None:
        """Check that everything belongs to something."""
        kept = {each.ledger for each in (self.info or _NONE).ledgers}
        kept.update(self._cursor_ledgers.values(), self._notes.values())
        for ledger in self._ledgers:
            if ledger not in kept:
                self._fail("S8", f"ledger {ledger} is neither listed, nor a cursor's, nor noted")
        for row in (self.info or _NONE).ledgers:
            if row.ledger not in self._ledgers:
                self._fail("S4", f"ledger {row.ledger} is listed, and does not exist")
        for cursor, ledger in self._cursor_ledgers.items():
            if ledger not in self._ledgers:
                self._fail("S6", f"ledger {ledger} of cursor {cursor} does not exist")

    def _ledger_changed(self, ledger: LedgerId, after: Znode | None) -> None:
        if after is None:
            del self._ledgers[ledger], self.creations[ledger]
            return
        self._ledgers[ledger] = ledgers.decode(after.data, where="judge", ctime_ms=0)
        self.creations[ledger] = after.creation

    def _note_changed(self, ledger: LedgerId, path: str, after: Znode | None) -> None:
        if after is None:
            del self._notes[path]
        else:
            self._notes[path] = ledger

    def _cursor_changed(self, cursor: str, after: Znode | None) -> None:
        if after is None:
            self._cursor_ledgers.pop(cursor, None)
            if cursor in self._cursors:
                self._cursors[cursor].deleted()
            return
        info = finished(managed_ledgers.cursor_decoding(after.data, where="judge"))
        if info.ledger != NO_LEDGER:
            self._cursor_ledgers[cursor] = info.ledger
        else:
            self._cursor_ledgers.pop(cursor, None)
        if cursor in self._cursors:
            self._cursors[cursor].stored(info, self._now())

    # The list.

    def _list_changed(self, after: StreamInfo | None) -> None:
        before, self.info = self.info or _NONE, after
        if after is None:
            for row in before.ledgers:
                self._removed[row.ledger] = _Removed(row.entries)
            return
        ids = [each.ledger for each in after.ledgers]
        if ids != sorted(set(ids)):
            self._fail("S4", f"the ids of the list do not ascend: {ids}")
        rows = {each.ledger: each for each in after.ledgers}
        is_deletion = self.may_be_deleted and not after.ledgers  # its owner never drops the newest one
        self.deletions += is_deletion and before.ledgers != ()
        for old in before.ledgers:
            if old.ledger not in rows:
                self._removed_from_list(old, is_deletion=is_deletion)
            elif old.is_closed and rows[old.ledger] != old:
                self._fail("S4", f"a closed ledger was changed in the list: {old} to {rows[old.ledger]}")
        known = {each.ledger for each in before.ledgers}
        for ledger in ids:
            if ledger not in known and ledger <= self._newest:
                self._fail("S4", f"ledger {ledger} was listed after {self._newest}")
            self._newest = max(self._newest, ledger)
        for row in after.ledgers:
            self._check_row(row, is_last=row is after.ledgers[-1])
        self._check_terminated(before, after)
        if expired_in(after) < expired_in(before):
            self._fail("S7", f"what had expired up to {expired_in(before)} has up to {expired_in(after)}")
        if expired_in(after) > expired_in(before):
            self.expired_up_to(expired_in(before), expired_in(after))

    def _check_row(self, row: StreamLedger, *, is_last: bool) -> None:
        if not row.is_closed:
            if not is_last:
                self._fail("S4", f"ledger {row.ledger} is listed as open, and is not the newest")
            return
        metadata = self._ledgers.get(row.ledger)
        if metadata is None:
            return  # ``_settle`` says so
        if row.entries > self._most_entries:
            self._fail("S4", f"ledger {row.ledger} has {row.entries} entries, and is to have {self._most_entries}")
        if not metadata.is_closed or (metadata.last_entry + 1, metadata.length) != (row.entries, row.size):
            self._fail("S4", f"the list says {row}; the ledger is {metadata}")

    def _removed_from_list(self, row: StreamLedger, *, is_deletion: bool) -> None:
        metadata = self._ledgers.get(row.ledger)
        if metadata is None or not (metadata.is_closed or is_deletion):
            self._fail("S7", f"ledger {row.ledger} left the list, and is {metadata}")
        self._removed[row.ledger] = _Removed(metadata.last_entry + 1 if metadata.is_closed else None)
        if metadata.last_entry < 0 or is_deletion:
            return
        for cursor in self._cursors.values():
            needed = cursor.needs(row.ledger, metadata.last_entry, self._now())
            if needed is not None:
                self._fail("S7", f"ledger {row.ledger} was trimmed, and cursor {cursor.name} needs {needed} of it")

    def _check_terminated(self, before: StreamInfo, after: StreamInfo) -> None:
        self.was_terminated = self.was_terminated or after.terminated is not None
        if before.terminated is not None:
            if after.terminated != before.terminated:
                self._fail("S4", f"the stream was terminated at {before.terminated}; now that is {after.terminated}")
            if {each.ledger for each in after.ledgers} - {each.ledger for each in before.ledgers}:
                self._fail("S3", "a ledger was listed after the stream was terminated")
        elif after.terminated is not None:
            for ledger, entry in self._acked_ends.items():
                if Position(ledger, entry) > after.terminated:
                    self._fail("S3", f"the stream was terminated at {after.terminated}; {ledger}:{entry} is stored")


def _decode(node: Znode) -> StreamInfo:
    return managed_ledgers.decode_stream(node.data, where="judge")
