"""The promises of sinks, checked at each change of the metadata, commit and delivery, and at the end.

K1 a batch that a commit called stored is in the stream whole and once, those of an application in their order; each
change of the list stores one batch of one application, or none. K2 what no commit stored is never read. K3 a run that
is over stores nothing, and one that goes on is not refused. K4 CheckpointLost is told to another query, and to nobody
else. K5 no ledger is deleted that a commit can list. K6 retention drops nothing that is too young. Those of
``streams_judge`` hold, too: S8 and S9 say that nothing stays that belongs to nothing.

The records are read here by what ``docs/streams.md`` says of them, and not by the code that is judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.stream.splice.commit_core import WrittenLedger
from tallystick.bookkeeper.stream.splice.sink import Committed
from tallystick.bookkeeper.wire.stream_values import Position, StreamInfo
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import CheckpointLost, LedgerError, StreamFenced, StreamOwned, TallyError
from tallystick.sim.past_tree import NodeChange
from tallystick.sim.sinks_plan import SinksPlan
from tallystick.sim.streams_history import Append, Positions, payload
from tallystick.sim.streams_judge import StreamsJudge
from tallystick.sim.virtual.loop import START_MS
from tallystick.sim.virtual.trace import Trace

RECORD = "tallystick/sink/"
ATTEMPT = "tallystick/attempt"


@dataclass(eq=False)
class Part:
    """An attempt at a partition of a batch; ``written`` is what it returned when it was closed."""

    application: str
    run: str
    batch: int
    partition: int
    attempt: int
    rows: list[Append]
    written: WrittenLedger | None = None


@dataclass(frozen=True)
class Told:
    """What the list says of an application."""

    query: str
    run: str
    batch: int


@dataclass(eq=False)
class Commit:
    """One call. ``is_over``: the run was over when it began, and ``was_stored`` the batch was stored."""

    application: str
    run: str
    batch: int
    parts: Sequence[Part]
    is_over: bool
    was_stored: bool


@dataclass(eq=False)
class Application:
    """What is known of one."""

    told: Told | None = None
    runs: dict[str, None] = field(default_factory=dict)  # that were recorded
    stored: dict[int, tuple[LedgerId, ...]] = field(default_factory=dict)  # the ledgers of each batch
    confirmed: dict[int, Sequence[Part]] = field(default_factory=dict)  # of which a commit said that it stored them
    newest: int = -1  # batch that anybody tried


class SinksJudge(StreamsJudge):
    """Checks the promises; ``violation`` is the first that was broken."""

    def __init__(self, trace: Trace, plan: SinksPlan, now: Callable[[], float]) -> None:
        super().__init__(trace, plan, now)
        self.has_owners = bool(plan.owners)
        self._keeps_ledgers = plan.is_made and not plan.owners  # of attempts
        self.applications = {each.name: Application() for each in plan.applications}
        self._parts: dict[LedgerId, Part] = {}  # that were closed
        self._rows: dict[int, Part] = {}  # by the number of their appends

    # Attempts.

    def part(self, application: str, run: str, batch: int, partition: int, attempt: int, rows: int) -> Part:
        """Returns an attempt that begins, with rows that no other one has."""
        part = Part(application, run, batch, partition, attempt, [])
        for _ in range(rows):
            number = len(self.appends)
            append = Append(number, payload(number, self._plan.largest), None, self._now())
            self.appends.append(append)
            self._rows[number] = part
            part.rows.append(append)
        known = self.applications[application]
        known.newest = max(known.newest, batch)
        return part

    def wrote(self, part: Part, written: WrittenLedger | None) -> None:
        """An attempt was closed."""
        self._trace.note("wrote", part.application, part.run, part.batch, part.partition, part.attempt, written)
        entries = len(part.rows) if self._plan.entry_format == "raw" else min(len(part.rows), 1)
        if (0 if written is None else written.entries) != entries:
            self.fail("K1", f"{len(part.rows)} rows were written, and the attempt returned {written}")
        part.written = written
        if written is not None:
            self._parts[written.ledger] = part

    # Runs.

    def lost(self, application: str, query: str, error: CheckpointLost) -> None:
        """Somebody was told that another query has committed under the name."""
        told = self.applications[application].told
        self._trace.note("checkpoint lost", application, query)
        if told is None or told.query == query or error.fields["query"] != told.query:
            self.fail("K4", f"query {query} of {application} was told {error!r}, and the list says {told}")

    def begun(self, application: str, query: str, run: str, *, before: int, batch: int) -> None:
        """A run began, which was told that this batch was the last one; it was ``before`` when that was asked."""
        known = self.applications[application]
        self._trace.note("begun", application, query, run, batch)
        if known.told is None or known.told.query != query:
            self.fail("K4", f"query {query} of {application} has begun, and the list says {known.told}")
        if run not in known.runs:
            self.fail("K3", f"run {run} of {application} has begun, and was never recorded")
        if not before <= batch <= known.told.batch:
            self.fail("K1", f"run {run} of {application} goes on behind batch {batch}; the list says {known.told}")

    def refused_run(self, application: str, run: str, error: TallyError) -> None:
        """A run could not begin."""
        known = self.applications[application]
        is_over = run in known.runs and known.told is not None and known.told.run != run
        if (isinstance(error, StreamOwned) and not self.has_owners) or (
            isinstance(error, StreamFenced) and not is_over
        ):
            self.fail("K3", f"run {run} of {application} was told {error!r}, and the list says {known.told}")

    # Commits.

    def batch(self, application: str) -> int:
        """Returns the last batch that is stored."""
        told = self.applications[application].told
        return -1 if told is None else told.batch

    def committing(self, application: str, run: str, batch: int, parts: Sequence[Part]) -> Commit:
        known = self.applications[application]
        known.newest = max(known.newest, batch)
        is_over = known.told is not None and known.told.run != run
        self._trace.note("committing", application, run, batch, *(part.written for part in parts))
        return Commit(application, run, batch, parts, is_over, self.batch(application) >= batch)

    def committed(self, commit: Commit, result: Committed) -> None:
        """Whoever committed was told that the batch is stored."""
        known, text = (
            self.applications[commit.application],
            f"run {commit.run} committed batch {commit.batch}: {result}",
        )
        self._trace.note(text)
        if self.batch(commit.application) < commit.batch:
            self.fail("K1", f"{text}, and the list says {known.told}")
        self.promise_count += 1
        if result.was_stored:
            return
        if commit.is_over and not commit.was_stored:
            self.fail("K3", f"{text}, and was over before: the list says {known.told}")
        if known.stored.get(commit.batch) != result.ledgers:
            self.fail("K1", f"{text}, and the ledgers {known.stored.get(commit.batch)} were listed")
        written = [part.written for part in commit.parts if part.written is not None]
        if len(written) != len(result.ledgers):
            self.fail("K1", f"{text}, and was given {written}")
        known.confirmed[commit.batch] = commit.parts

    def refused(self, commit: Commit, error: TallyError) -> None:
        """A commit failed."""
        told = self.applications[commit.application].told
        self._trace.note("refused", commit.application, commit.run, commit.batch, repr(error))
        text = f"batch {commit.batch} of run {commit.run} was refused with {error!r}, and the list says {told}"
        if isinstance(error, CheckpointLost):
            self.fail("K4", text)
        goes_on = told is not None and told.run == commit.run
        if (isinstance(error, StreamFenced) and goes_on) or (isinstance(error, StreamOwned) and not self.has_owners):
            self.fail("K3", text)
        is_wanted = goes_on and told is not None and told.batch < commit.batch
        if isinstance(error, LedgerError) and is_wanted and self._keeps_ledgers:
            self.fail("K5", text)

    # Readers.

    def delivered(self, position: Position, data: bytes, to: str, published_ms: int | None = None) -> int:
        number = super().delivered(position, data, to, published_ms)
        part = self._rows.get(number)
        if part is not None and self.batch(part.application) < part.batch:
            self.fail("K2", f"{to} read {data!r} at {position}, of batch {part.batch} that is not stored")
        return number

    def _check_order(self, content: Positions) -> None:
        rows, owned = list[tuple[Position, Part, int]](), Positions()
        for position in content.order:
            number = content.numbers[position]
            if (part := self._rows.get(number)) is None:
                owned.add(position, number)
            else:
                rows.append((position, part, number))
        super()._check_order(owned)
        self._check_batches(rows)

    def _check_batches(self, rows: list[tuple[Position, Part, int]]) -> None:
        ledgers: dict[LedgerId, list[int]] = {}
        parts: dict[LedgerId, Part] = {}
        for position, part, number in rows:
            ledgers.setdefault(position.ledger, []).append(number)
            parts[position.ledger] = part
        newest: dict[str, int] = {}
        places: dict[tuple[str, int, int], LedgerId] = {}
        for ledger, part in parts.items():
            if ledgers[ledger] != [row.number for row in part.rows]:
                self.fail("K1", f"ledger {ledger} has rows {ledgers[ledger]}, and {part} was written")
            if part.batch < newest.get(part.application, -1):
                self.fail("K1", f"batch {part.batch} of {part.application} is behind a later one, in ledger {ledger}")
            newest[part.application] = part.batch
            key = part.application, part.batch, part.partition
            if key in places:
                self.fail("K1", f"partition {key} is in ledgers {places[key]} and {ledger}")
            places[key] = ledger
        if not self.list.has_trimmed:
            found = list(parts.values())
            for known in self.applications.values():
                missing = [
                    part for each in known.confirmed.values() for part in each if part.rows and part not in found
                ]
                if missing:
                    self.fail("K1", f"a commit stored {missing[0]}, which is not there")

    # The metadata.

    def changed(self, changes: Sequence[NodeChange]) -> None:
        before = self.list.info or StreamInfo()
        super().changed(changes)
        after = self.list.info or StreamInfo()
        if before is not after:
            self._list_changed(before, after)
        if self._keeps_ledgers:
            for ledger, part in self._parts.items():
                told = self.applications[part.application].told
                is_wanted = told is not None and told.run == part.run and told.batch < part.batch
                if is_wanted and ledger not in self.list.creations:
                    self.fail("K5", f"ledger {ledger} was deleted, and the list says {told}: {part}")

    def _list_changed(self, before: StreamInfo, after: StreamInfo) -> None:
        if self.list.info is None or self.list.may_be_deleted:
            return  # in the end
        known_ids, ids = {row.ledger for row in before.ledgers}, {row.ledger for row in after.ledgers}
        added = tuple(row.ledger for row in after.ledgers if row.ledger not in known_ids)
        stored = [name for name in self.applications if self._told(name, after)]
        if len(stored) > 1:
            self.fail("K1", f"one change stored batches of {stored}")
        is_owners = "tallystick/writer" not in after.properties
        was_owners = "tallystick/writer" not in before.properties
        begins = was_owners and len(added) == 1 and after.ledgers[-1].is_closed and not after.ledgers[-1].entries
        if not is_owners and not stored and added and not begins:
            self.fail("K1", f"ledgers {added} were listed, and no batch was stored")
        for name in stored:
            self._store(name, added)
        now_ms, retention_s = START_MS + int(self._now() * 1000), self._plan.retention_s
        for row in before.ledgers:
            if row.ledger in ids or (row.entries == 0 and self.has_owners):
                continue
            if not 0 <= retention_s * 1000 <= now_ms - row.timestamp_ms:
                self.fail("K6", f"{row} was dropped at {now_ms}, and is kept for {retention_s} s")

    def _told(self, name: str, info: StreamInfo) -> bool:
        """Look at what the list says of an application. Returns whether a batch was stored."""
        known, written = self.applications[name], info.properties.get(RECORD + name)
        before = known.told
        if written is None:
            if before is not None:
                self.fail("K1", f"the list forgot {name}, which had {before}")
            return False
        fields = json.loads(written)
        told = known.told = Told(fields["query"], fields["run"], fields["batch"])
        if before is None or before == told:
            known.runs[told.run] = None
            return before is None and told.batch >= 0
        if told.query != before.query or told.batch < before.batch:
            self.fail(
                "K4" if told.query != before.query else "K1", f"what is said of {name} went from {before} to {told}"
            )
        if told.run != before.run:
            if told.run in known.runs or told.batch != before.batch:
                self.fail("K3", f"what is said of {name} went from {before} to {told}")
            known.runs[told.run] = None
        return told.batch > before.batch

    def _store(self, name: str, ledgers: tuple[LedgerId, ...]) -> None:
        """A change of the list stored a batch, in these ledgers."""
        known = self.applications[name]
        assert known.told is not None
        known.stored[known.told.batch] = ledgers
        for ledger in ledgers:
            metadata = self.list.metadata(ledger)
            note = json.loads(metadata.custom[ATTEMPT])
            if (note["application"], note["run"], note["batch"]) != (name, known.told.run, known.told.batch):
                self.fail("K3", f"ledger {ledger} of {note} was listed, and the list says {known.told}")
            if (part := self._parts.get(ledger)) is not None:
                self._stored(ledger, part)
            else:
                self._trace.note("copied", ledger, note)

    def _stored(self, ledger: LedgerId, part: Part) -> None:
        """The rows of an attempt are in the stream."""
        is_raw, is_one = self._plan.entry_format == "raw", len(part.rows) == 1
        for index, append in enumerate(part.rows):
            append.position = Position(ledger, index) if is_raw else Position(ledger, 0, -1 if is_one else index)
            append.is_stored = True
            self.acked.add(append.position, append.number)
