"""Which bookies are asked to say when the LAC of a ledger moves.

A writer tells its LAC to the write set of each entry, so one bookie of each write set knows it: E - Qw + 1 that follow
each other are in all of them. When these are silent for a while the others are asked too, one after another: an entry
may be on Qa bookies of its write set alone. Who fails is left alone for a growing while. Where those that were asked
do not meet every write set, as they fail or do not speak version 3, the LAC is asked for again and again (``lac.py``).
"""

from __future__ import annotations

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.values import Slot

SPECULATIVE_S = 0.2  # another bookie is asked when nothing comes for so long
FIRST_PAUSE_S = 0.01
MAX_PAUSE_S = 0.25


class PollPlanCore:
    """The plan for one ensemble. ``slot``: where to begin, so that readers of many ledgers ask all bookies alike."""

    def __init__(self, striping: Striping, slot: Slot, now: float) -> None:
        size = striping.ensemble_size
        self._striping = striping
        self._order = [(slot + i) % size for i in range(size)]
        self._least = size - striping.write_quorum + 1
        self._held: dict[Slot, None] = {}  # asked, and no answer yet
        self._again_at: dict[Slot, float] = {}
        self._pauses: dict[Slot, float] = {}
        self._quiet_since = now
        self._ask_at: float | None = None
        self._ask_pause_s = FIRST_PAUSE_S

    def take_due(self, now: float) -> list[Slot]:
        """Take the bookies to ask now."""
        most = self._least + int((now - self._quiet_since) / SPECULATIVE_S + 1e-9)
        due = [slot for slot in self._order if slot not in self._held and self._again_at.get(slot, now) <= now]
        due = due[: max(0, most - len(self._held))]
        self._held.update(dict.fromkeys(due))
        return due

    def waited(self, slot: Slot) -> None:
        """The bookie has waited for as long as it was asked to, and the LAC did not move."""
        self._held.pop(slot, None)

    def failed(self, slot: Slot, now: float) -> None:
        """The bookie did not do it."""
        self._held.pop(slot, None)
        pause_s = self._pauses.get(slot, FIRST_PAUSE_S)
        self._again_at[slot], self._pauses[slot] = now + pause_s, min(2 * pause_s, MAX_PAUSE_S)

    def moved(self, slot: Slot | None, now: float) -> None:
        """The LAC has moved; a bookie (None: something else) told it."""
        if slot is not None:
            self._held.pop(slot, None)
            self._pauses.pop(slot, None)
        self._quiet_since, self._ask_pause_s = now, FIRST_PAUSE_S

    def must_ask(self, now: float) -> bool:
        """Return whether the LAC has to be asked for now."""
        size = self._striping.ensemble_size
        if all(any(slot in self._held for slot in self._striping.slots(first)) for first in range(size)):
            self._ask_at = None
            return False
        if self._ask_at is None:
            self._ask_at = now + self._ask_pause_s
        if now < self._ask_at:
            return False
        self._ask_at, self._ask_pause_s = None, min(2 * self._ask_pause_s, MAX_PAUSE_S)
        return True

    def wake_at(self, now: float) -> float | None:
        """Return when there is more to do, if nothing comes before."""
        times = [at for slot, at in self._again_at.items() if slot not in self._held and at > now]
        if self._ask_at is not None:
            times.append(self._ask_at)
        if len(self._held) < len(self._order):
            silences = int((now - self._quiet_since) / SPECULATIVE_S + 1e-9) + 1
            times.append(self._quiet_since + silences * SPECULATIVE_S)
        return min(times, default=None)
