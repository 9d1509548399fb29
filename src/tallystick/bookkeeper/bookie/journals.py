"""The journals of a bookie, each in a folder of its own: a ledger's records are all in one of them.

What is staged is one commit, with a part for each journal that it concerns; the parts are written and synced at the
same time, each journal on a thread of its own. Each journal counts its own commits, without gaps, and is replayed by
itself. A commit is durable when all its parts are. So with one journal a part is the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie.journal import Commit, Journal
from tallystick.bookkeeper.bookie.places import JournalMark, Mark
from tallystick.errors import DiskFull, StorageError
from tallystick.runtime.disk import Buffer, Disk


@dataclass(frozen=True)
class StagedCommit:
    """What was staged until now: a commit of some journals."""

    number: int  # of commits since the start; with one journal that of the journal
    parts: tuple[tuple[int, Commit], ...] = field(repr=False)  # by journal
    size: int


class Journals:
    """The journals by number. ``write``, ``sync`` and ``commit`` run on one thread, ``release`` on that or another."""

    def __init__(self, journals: Sequence[Journal], disk: Disk, names: Sequence[str]) -> None:
        self._journals, self._paths = tuple(journals), tuple(names)
        self._besides = [disk.beside(f"tally-journal-{number}") for number in range(1, len(journals))]
        self._taken, self._written = [0] * len(journals), [0] * len(journals)

    def __len__(self) -> int:
        return len(self._journals)

    def __iter__(self) -> Iterator[Journal]:
        return iter(self._journals)

    def replayed(self, numbers: Sequence[int]) -> None:
        """The journals end with these commits."""
        self._taken, self._written = list(numbers), list(numbers)

    @property
    def positions(self) -> tuple[int, ...]:
        """The numbers of the last commit taken of each journal."""
        return tuple(self._taken)

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of the last commit written of each journal."""
        return tuple(self._written)

    def take(self, number: int, staged: Sequence[list[Buffer]]) -> StagedCommit:
        """Make a commit of what is staged for each journal."""
        parts, total = list[tuple[int, Commit]](), 0
        for journal, buffers in enumerate(staged):
            if buffers:
                size = sum(map(len, buffers))
                self._taken[journal] += 1
                parts.append((journal, Commit(self._taken[journal], tuple(buffers), size)))
                total += size
        return StagedCommit(number, tuple(parts), total)

    def write(self, commit: StagedCommit) -> None:
        """Write a commit. Raises DiskFull, after which the same one may be tried again, and StorageError."""
        self._at_once([self._writing(journal, part) for journal, part in commit.parts])

    def sync(self) -> None:
        """Make durable all that was written. Raises StorageError."""
        self._at_once([journal.sync for journal in self._journals])

    def commit(self, commit: StagedCommit) -> None:
        """Write a commit, and make durable all that was written. Raises as ``write``."""
        parts = dict(commit.parts)

        def both(number: int) -> Callable[[], None]:
            def do() -> None:
                if number in parts:
                    self._writing(number, parts[number])()
                self._journals[number].sync()

            return do

        self._at_once([both(number) for number in range(len(self._journals))])

    def _writing(self, journal: int, part: Commit) -> Callable[[], None]:
        def write() -> None:
            if part.number > self._written[journal]:  # else another part found its disk full, and this one is written
                self._journals[journal].write(part)
                self._written[journal] = part.number

        return write

    def _at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run the calls at the same time, and wait for all. Raises what stops the bookie before what does not."""
        if len(calls) == 1:
            calls[0]()
            return
        errors = list[StorageError]()

        def noted(call: Callable[[], None]) -> Callable[[], None]:
            def do() -> None:
                try:
                    call()
                except StorageError as error:
                    errors.append(error)

            return do

        self._from(0, [noted(call) for call in calls])
        for error in sorted(errors, key=lambda error: isinstance(error, DiskFull)):
            raise error

    def _from(self, at: int, calls: Sequence[Callable[[], None]]) -> None:
        if at == len(calls) - 1:
            calls[at]()
        elif calls:
            self._besides[at].both(calls[at], lambda: self._from(at + 1, calls))

    @property
    def used_bytes(self) -> int:
        """The bytes of journal that a restart would replay."""
        return sum([journal.used_bytes for journal in self._journals])

    def marks(self, mark: Mark) -> tuple[JournalMark, ...]:
        """Return what the state says of the journals, when it has all up to ``mark``."""
        return tuple(
            JournalMark(number, *journal.end, path)
            for number, journal, path in zip(mark.journals, self._journals, self._paths, strict=True)
        )

    def release(self, mark: Mark) -> None:
        """What is up to ``mark`` is elsewhere."""
        for journal, number in zip(self._journals, mark.journals, strict=True):
            journal.release(number)

    def close(self) -> None:
        for beside in self._besides:
            beside.close()
        for journal in self._journals:
            journal.close()
