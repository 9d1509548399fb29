"""Which entries of a ledger with deferred sync were acknowledged and may still be lost, and over which connection.

A bookie acknowledges such an entry before it is durable, and a force makes durable what was acknowledged over the same
connection: so far a bookie has not died in between. What came over an older connection may have been lost with the
process at its end, which no response to a force tells (the original takes it for durable). It counts when the bookie
shows over the new connection that it has it.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.bookkeeper.ledger.striping import Striping
from tallystick.bookkeeper.wire.values import EntryId, Slot


class AckedRun(NamedTuple):
    """All entries ``first`` … ``last`` of a slot's stripe, as they were acknowledged over one connection."""

    connection: int
    first: EntryId
    last: EntryId


class ForceCore:
    """The acknowledged entries of one ledger that no force has covered, by place in the ensemble."""

    def __init__(self, striping: Striping) -> None:
        self._striping = striping
        self._runs: list[list[AckedRun]] = [[] for _ in range(striping.ensemble_size)]

    def acked(self, slot: Slot, connection: int, first: EntryId, last: EntryId) -> None:
        """The slot's bookie acknowledged all entries ``first`` … ``last`` of its stripe over this connection."""
        runs = self._runs[slot]
        if runs and runs[-1].connection == connection:
            newest = runs[-1]
            if self._striping.next(slot, newest.last + 1) == self._striping.next(slot, first):
                runs[-1] = newest._replace(last=last)
                return
        runs.append(AckedRun(connection, first, last))

    def begin(self, slot: Slot) -> list[AckedRun]:
        """Take what a force that is sent to the slot now makes durable. ``failed`` puts it back."""
        runs, self._runs[slot] = self._runs[slot], []
        return runs

    def failed(self, slot: Slot, runs: list[AckedRun]) -> None:
        """Nobody knows whether these are durable."""
        self._runs[slot] = runs + self._runs[slot]

    def unproven(self, slot: Slot, connection: int) -> list[AckedRun]:
        """Return what the slot's bookie acknowledged over other connections than this one, ascending."""
        runs = [run for run in self._runs[slot] if run.connection != connection]
        return sorted(runs, key=lambda run: run.first)

    def proven(self, slot: Slot, connection: int) -> None:
        """The slot's bookie has shown over this connection that it has all that it acknowledged over others."""
        self._runs[slot] = [run._replace(connection=connection) for run in self._runs[slot]]
