"""What happens in one life of a simulated cluster, drawn from its seed; many faults are absent in many lives."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tallystick.sim.cluster_metadata import MetadataFaults
from tallystick.sim.faults import SHAPES
from tallystick.sim.virtual.network import LinkFaults

CHAOS = (
    "kill", "power loss", "stop", "pause", "cut in", "cut out", "cut off", "reset", "full disk", "crash in an operation"
)  # fmt: skip


@dataclass(frozen=True)
class BookPlan:
    """One ledger: who writes, reads, recovers and deletes it. Times are seconds after the begin."""

    shape: tuple[int, int, int]  # ensemble, write quorum, ack quorum
    digest: str
    password: bytes
    entries: int
    largest: int  # payload bytes
    begins: float
    pause_s: float  # between bursts, at most
    writer_end: str  # close | kill | idle
    waits: bool  # for its last acknowledgement, before it closes
    tails: bool  # a reader follows it
    recoverers: tuple[float, ...]  # when each begins
    deleted: bool  # once it is closed


@dataclass(frozen=True)
class ClusterPlan:
    """One life."""

    bookies: int
    links: LinkFaults
    metadata: MetadataFaults
    books: tuple[BookPlan, ...]
    chaos: tuple[tuple[float, str], ...]  # when, and what
    dark_at_ack: int | None  # all bookies lose power at the instant of this acknowledgement
    sync_s: float  # a sync takes, at most
    storm_s: float
    collect_s: float  # between two collections

    @classmethod
    def draw(cls, rng: random.Random) -> ClusterPlan:
        storm_s = rng.choice((3.0, 8.0, 8.0, 20.0))
        books = tuple(_book(rng, storm_s) for _ in range(rng.choice((1, 1, 1, 2, 3))))
        kinds = rng.sample(CHAOS, rng.randint(0, 4))
        events = sorted(
            (rng.random() * storm_s, rng.choice(kinds)) for _ in range(rng.choice((0, 2, 5, 12)) if kinds else 0)
        )
        return cls(
            bookies=max(book.shape[0] for book in books) + rng.choice((0, 0, 1, 1, 2)),
            links=LinkFaults(
                latency_s=rng.choice((0.001, 0.001, 0.02)),
                slow=rng.choice((0.0, 0.0, 0.02)),
                split=rng.choice((0.0, 0.2)),
                reset=rng.choice((0.0, 0.0, 0.01)),
                window_bytes=rng.choice((512, 16 * 1024, 64 * 1024)),
            ),
            metadata=MetadataFaults(*(rng.choice((0.0, 0.0, 0.1)) for _ in range(3))),
            books=books,
            chaos=tuple(events),
            dark_at_ack=rng.randrange(40) if rng.random() < 0.25 else None,
            sync_s=rng.choice((0.001, 0.01, 0.05)),
            storm_s=storm_s,
            collect_s=rng.choice((1.0, 4.0)),
        )  # fmt: skip


def _book(rng: random.Random, storm_s: float) -> BookPlan:
    begins = rng.random() * storm_s / 4
    soon = begins + rng.random() * rng.choice((0.1, 1.0, storm_s))  # rivals are often there at the same time
    return BookPlan(
        shape=rng.choice(SHAPES),
        digest=rng.choice(("crc32c", "crc32", "mac", "dummy")),
        password=rng.choice((b"", b"secret")),
        entries=rng.choice((1, 3, 10, 30, 80)),
        largest=rng.choice((0, 20, 20, 200, 3000)),
        begins=begins,
        pause_s=rng.choice((0.0, 0.02, storm_s / 10)),
        writer_end=rng.choice(("close", "close", "kill", "idle")),
        waits=rng.random() < 0.5,
        tails=rng.random() < 0.5,
        recoverers=tuple(soon + rng.random() * rng.choice((0.05, 2.0)) for _ in range(rng.choice((0, 1, 1, 2)))),
        deleted=rng.random() < 0.25,
    )
