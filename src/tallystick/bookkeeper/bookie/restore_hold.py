"""Whether collections stand still, as the metadata was restored; and saying what this bookie has that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.steps import STEP_LEDGERS, ascending
from tallystick.bookkeeper.metadata.restored import MOST_RUNS, BookieSurvey, RestoredMetadata, RestoredTree, Runs
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.codec.steps import Steps
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.turn_steps import in_turns

_REASON = (
    "the metadata was restored from a backup: nothing is deleted until an operator has seen what it lacks, and "
    "confirmed: tally cluster reconcile"
)


class RestoreHold:
    """What one bookie knows of the restore; ``look`` before anything is deleted."""

    def __init__(self, bookie: BookieId, clock: Clock, counts: Counts, events: Events) -> None:
        self._bookie, self._clock, self._counts, self._events = bookie, clock, counts, events
        self._said: tuple[int, int, int, int] | None = None

    async def look(self, tree: RestoredTree) -> RestoredMetadata | None:
        """Return the restore that nobody has confirmed, None if there is none. Raises MetadataError if that cannot be
        read: nothing may be deleted then either."""
        restored = await tree.held()
        if restored is None and self._said is not None:
            self._said = None
            self._events.emit("collections go on", bookie=self._bookie)
        self._counts.collections_held = int(restored is not None)
        return restored

    async def say(
        self,
        tree: RestoredTree,
        restored: RestoredMetadata,
        ahead: Collection[LedgerId],
        lacking: Sequence[LedgerId],
        deleted: Sequence[LedgerId],
    ) -> None:
        """Write which ledgers are here and not there; ``lacking`` and ``deleted`` ascend. Those that are ahead
        may be in ``lacking``, too. Raises MetadataError."""
        kinds = [
            await in_turns(_runs(await in_turns(ascending([*ahead])))),
            await in_turns(_runs(lacking, without=ahead)),
            await in_turns(_runs(deleted)),
        ]
        runs, more = [first for first, _ in kinds], sum(left for _, left in kinds)
        now_ms = self._clock.wall_ms()
        await tree.report(self._bookie, BookieSurvey(restored.epoch, now_ms, runs[0], runs[1], runs[2], more))
        state = restored.epoch, len(ahead), len(lacking), len(deleted)
        if state != self._said:
            self._said = state
            epoch, counts = restored.epoch, {"ahead": len(ahead), "lacking": len(lacking), "deleted": len(deleted)}
            self._events.emit("collections stand still", epoch=epoch, **counts, reason=_REASON)


def _runs(ledgers: Sequence[LedgerId], *, without: Container[LedgerId] = ()) -> Steps[tuple[Runs, int]]:
    """Return ascending ids as runs, the first ones, and how many ledgers found no place among these."""
    runs, last, left = list[tuple[LedgerId, LedgerId]](), -2, 0
    for count, ledger in enumerate(ledgers, 1):
        if not count % STEP_LEDGERS:
            yield
        if ledger in without:
            continue
        if runs and ledger == last + 1 and not left:
            runs[-1] = runs[-1][0], ledger
        elif len(runs) < MOST_RUNS:
            runs.append((ledger, ledger))
        else:
            left += 1
        last = ledger
    return tuple(runs), left
