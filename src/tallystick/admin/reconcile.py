"""After metadata was restored: what bookies have that it lacks, and the word that collections may go on."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from tallystick.admin.cluster import metadata
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.restored import BookieSurvey, RestoredMetadata, RestoredTree, Runs
from tallystick.bookkeeper.wire.lost_runs import joined
from tallystick.bookkeeper.wire.values import BookieId, LedgerId, LedgerState
from tallystick.errors import UsageError
from tallystick.runtime.clock import SystemClock

_PAGE = 1000


@dataclass(frozen=True)
class LackingRun:
    """Ledgers ``first`` to ``last``, which these bookies have and the metadata lacks. ``is_kept``: bookies keep them
    until each is told `tally bookie collect --now`; else the next collections delete them."""

    first: LedgerId
    last: LedgerId
    bookies: tuple[BookieId, ...]
    is_kept: bool


@dataclass(frozen=True)
class Reconciliation:
    """What restored metadata lacks. ``deleted``: runs of ledgers that it has again, and whose entries bookies deleted
    before. ``still_open``: of the ledgers that were open in the backup. ``unheard``: bookies that have not said what
    they have; ``more``: ledgers that found no place in what was said."""

    restored: RestoredMetadata
    lacking: tuple[LackingRun, ...]
    deleted: Runs
    still_open: tuple[LedgerId, ...]
    unheard: tuple[BookieId, ...]
    more: int

    @property
    def code(self) -> str:
        """Return eight hexadecimal digits that stand for what is to be confirmed: another list has another code."""
        listed = (self.restored.epoch, *map(astuple, self.lacking), self.deleted, self.unheard, self.more)
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Confirmation:
    """An operator's word that bookies may delete again: who says it, and the code of the list that they were shown."""

    who: str
    code: str


async def reconcile(
    uri: str, *, confirmation: Confirmation | None = None, without: Sequence[BookieId] = ()
) -> Reconciliation | None:
    """Say what restored metadata lacks, and with ``confirmation`` let bookies delete again. Returns None if it was
    never restored.

    Raises UsageError, if that is to be confirmed, while a bookie has not said what it has, unless it is one of
    ``without``, and when the list is another than the one that was shown; and for one of ``without`` that the cluster
    does not have. Raises MetadataError.
    """
    async with metadata(uri) as driver:
        tree = RestoredTree(driver)
        restored = await tree.read()
        if restored is None:
            return None
        bookies = await _bookies(driver)
        if strangers := sorted({*without} - bookies):
            raise UsageError("the cluster has no such bookie", bookies=", ".join(strangers))
        surveys = {
            name: survey for name, survey in (await tree.surveys()).items() if survey.epoch == restored.value.epoch
        }
        unheard = tuple(sorted(bookies - surveys.keys()))
        result = Reconciliation(
            restored.value,
            tuple(_lacking(surveys)),
            joined([run for survey in surveys.values() for run in survey.deleted]),
            tuple(await _open(driver, restored.value.open_ledgers)),
            unheard,
            sum(survey.more for survey in surveys.values()),
        )
        if confirmation is not None and restored.value.confirmed_ms is None:
            if missing := [name for name in unheard if name not in without]:
                raise UsageError(
                    "these bookies have not said what they have: start them, and look again; leave one out that does "
                    "not come back with --without",
                    bookies=", ".join(missing),
                )
            if confirmation.code != result.code:
                raise UsageError(
                    "this is not the code of what lacks now: look at the list again, and confirm with its code",
                    code=confirmation.code,
                )
            confirmed = await tree.confirm(restored.value, restored.version, SystemClock().wall_ms(), confirmation.who)
            return replace(result, restored=confirmed)
        return result


async def _bookies(driver: MetadataDriver) -> set[BookieId]:
    registered = await driver.bookies()
    return {*await driver.cookies(), *registered.writable, *registered.read_only}


async def _open(driver: MetadataDriver, ledgers: Sequence[LedgerId]) -> list[LedgerId]:
    """Return those that are not closed yet."""
    still = list[LedgerId]()
    for start in range(0, len(ledgers), _PAGE):
        records = await driver.look_up(ledgers[start : start + _PAGE])
        still += [
            ledger
            for ledger, record in records.items()
            if record is not None and record.state is not LedgerState.CLOSED
        ]
    return still


def _lacking(surveys: Mapping[BookieId, BookieSurvey]) -> Iterable[LackingRun]:
    """Yield the ledgers that lack, by id; those in a row that the same bookies have, and that go the same way, as one.

    One that any bookie would delete counts as one that is deleted.
    """
    edges = defaultdict[LedgerId, list[tuple[BookieId, bool, int]]](list)  # what begins (1) or ends (-1) there
    for bookie, survey in sorted(surveys.items()):
        for runs, is_kept in ((survey.ahead, True), (survey.missing, False)):
            for first, last in runs:
                edges[first].append((bookie, is_kept, 1))
                edges[last + 1].append((bookie, is_kept, -1))
    having = defaultdict[tuple[BookieId, bool], int](int)
    before: LedgerId = 0
    for ledger in sorted(edges):
        if present := sorted(key for key, count in having.items() if count):
            names = tuple(dict.fromkeys(bookie for bookie, _ in present))
            yield LackingRun(before, ledger - 1, names, all(is_kept for _, is_kept in present))
        for bookie, is_kept, step in edges[ledger]:
            having[bookie, is_kept] += step
        before = ledger
