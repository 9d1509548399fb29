"""Decide what to do next for a marked ledger, from its metadata and from who is registered.

::

    a place of an absent bookie ─▶ Copy to another bookie     of one that is back ─▶ Check, copy in place
    a second place of a bookie in one fragment ─▶ Copy
    the newest fragment has no end, and names an absent bookie ─▶ Wait until the metadata stood still, then Recover
    nothing of these ─▶ Done
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tallystick.bookkeeper.repair import shortfall
from tallystick.bookkeeper.repair.shortfall import Place
from tallystick.bookkeeper.wire.values import BookieId, LedgerMetadata, LedgerState


@dataclass(frozen=True)
class Copy:
    """Copy the entries of the place to another bookie, and store that one in its stead."""

    place: Place


@dataclass(frozen=True)
class Check:
    """Read the entries of the place from its bookie, and make good there what it lacks."""

    place: Place


@dataclass(frozen=True)
class Recover:
    """Fence, recover and close the ledger: its writer has not replaced a bookie that is gone."""


@dataclass(frozen=True)
class Wait:
    """Nothing can be done before ``seconds`` have passed, or the metadata has changed."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class Done:
    """Nothing is left of the mark."""


Step = Copy | Check | Recover | Wait | Done


def next_step(
    metadata: LedgerMetadata,
    marked: Collection[BookieId],
    registered: Collection[BookieId],
    checked: Collection[Place],
    *,
    stuck: Collection[Place] = (),
    still_s: float,
    open_grace_s: float,
) -> Step:
    """``marked``: the bookies that the mark names; of one that names none all are looked at. ``checked``: places whose
    entries are all there. ``stuck``: places that nothing can be done for. ``still_s``: how long the metadata has been
    as it is."""
    named = marked or dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.bookies)
    absent = [bookie for bookie in named if bookie not in registered]
    for place in (*shortfall.places(metadata, absent), *shortfall.doubles(metadata, named)):
        if place not in stuck:
            return Copy(place)
    for place in shortfall.places(metadata, named):
        if place not in checked and place not in stuck:
            return Check(place)
    if shortfall.is_open_at(metadata, absent):
        if still_s >= open_grace_s:
            return Recover()
        reason = "the ledger is written, and its writer may replace the bookie by itself"
        if metadata.state is LedgerState.IN_RECOVERY:
            reason = "a recovery of the ledger has begun and not ended: it may be under way"
        return Wait(open_grace_s - still_s, reason)
    if marked and shortfall.is_open_at(metadata, named):
        return Wait(open_grace_s, "the ledger is written: what its newest fragment lacks is known when that has an end")
    return Done()
