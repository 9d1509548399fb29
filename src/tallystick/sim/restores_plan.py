"""What becomes of the metadata in one life whose metadata is restored, and which ledgers are made around that."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tallystick.sim.cluster_faults import BookPlan, ClusterPlan
from tallystick.sim.cluster_metadata import MetadataFaults


@dataclass(frozen=True)
class RestorePlan:
    """One backup, and one restore."""

    saved_at: float  # seconds after the begin of the storm
    settles: bool  # all comes to its end, and copies move, before the metadata is lost
    is_gone: bool  # no file is left; else there is the newer one, which is replaced
    ends: str  # how bookies end before: kill | power loss | stop
    has_unreadable: bool  # the folders of one bookie cannot be read then
    operator: str  # "" | confirms | gives up
    operator_at: float  # seconds after the restore
    bounces: bool  # a bookie starts again meanwhile
    loses_one: bool  # a bookie, afterwards

    @classmethod
    def draw(cls, rng: random.Random, storm_s: float) -> RestorePlan:
        return cls(
            saved_at=storm_s * (0.2 + 0.7 * rng.random()),
            settles=rng.random() < 0.35,
            is_gone=rng.random() < 0.5,
            ends=rng.choice(("kill", "power loss", "stop")),
            has_unreadable=rng.random() < 0.25,
            operator=rng.choice(("", "confirms", "gives up")),
            operator_at=rng.choice((0.0, 2.0, 8.0)),
            bounces=rng.random() < 0.5,
            loses_one=rng.random() < 0.5,
        )


def draw(rng: random.Random) -> tuple[ClusterPlan, RestorePlan]:
    """Return the plan of a life. Damage of disks is another matter (``cluster.py``), and so are ids that are used again
    and metadata that does not answer; there is a bookie to copy to."""
    plan = ClusterPlan.draw(rng)
    restore = RestorePlan.draw(rng, plan.storm_s)
    books = [_older(rng, book, restore.saved_at) for book in plan.books if book.takes_id_of is None]
    later = [_later(rng, rng.choice(books), plan.storm_s, restore.saved_at) for _ in range(rng.choice((1, 2, 3)))]
    plan = replace(
        plan,
        bookies=plan.bookies + 1,
        metadata=MetadataFaults(slow=plan.metadata.slow),
        books=(*books, *later),
        damage=None,
        collect_s=2.0,
    )
    return plan, restore


def _older(rng: random.Random, book: BookPlan, saved_at: float) -> BookPlan:
    """Return a ledger that is made before the backup, and may be deleted later. Nobody is killed who makes it."""
    return replace(
        book,
        begins=min(book.begins, saved_at / 2),
        writer_end=rng.choice(("close", "idle")) if book.writer_end == "kill" else book.writer_end,
        deleted=book.deleted or rng.choice(("", "", "closed")),
    )


def _later(rng: random.Random, book: BookPlan, storm_s: float, saved_at: float) -> BookPlan:
    """Return another ledger, which is made after the backup."""
    begins = saved_at + rng.random() * (storm_s - saved_at)
    return replace(book, begins=begins, entries=rng.choice((1, 3, 10)), recoverers=())


def new_book(book: BookPlan) -> BookPlan:
    """Return a ledger that is written when the metadata is back."""
    return replace(
        book,
        begins=0.0,
        entries=3,
        pause_s=0.1,
        writer_end="close",
        waits=True,
        tails=False,
        looks=False,
        recoverers=(),
        deleted="",
        gives_ids=False,
        defers=False,
        forces=False,
    )
