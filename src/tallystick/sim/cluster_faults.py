"""What happens in one life of a simulated cluster, drawn from its seed; many faults are absent in many lives.

Half of the lives are *duels*: one ledger with few entries, its writer and rivals who recover it all within a second or
three. They find more faults of the protocol a second than the long lives, which have everything else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tallystick.sim.cluster_metadata import MetadataFaults
from tallystick.sim.virtual.network import LinkFaults

SHAPES = ((3, 3, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (4, 3, 2), (3, 3, 3), (4, 2, 1), (1, 1, 1))
CHAOS = (
    "kill", "power loss", "stop", "pause", "cut in", "cut out", "cut off", "reset", "full disk",
    "crash in an operation", "pause of a client", "cut of a client",
)  # fmt: skip
WIRES = (("auto",), ("auto",), ("v3",), ("auto", "v2", "v3"))
DAMAGE = ("empty disk", "older disk", "rot", "another at its address")


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
    looks: bool  # a reader opens it again and again
    recoverers: tuple[float, ...]  # when each begins
    deleted: str  # "" | closed | any time
    takes_id_of: int | None = None  # of an earlier one, once that is deleted
    accepts_silent: bool = False  # bookies that may still hold that one
    gives_ids: bool = False  # in any order, with gaps
    defers: bool = False  # what is acknowledged is durable once it was forced
    forces: bool = False  # now and then


@dataclass(frozen=True)
class ClusterPlan:
    """One life."""

    bookies: int
    links: LinkFaults
    metadata: MetadataFaults
    books: tuple[BookPlan, ...]
    chaos: tuple[tuple[float, str], ...]  # when, and what
    damage: tuple[float, str] | None  # to one bookie
    dark_at_ack: int | None  # all bookies lose power at the instant of this acknowledgement
    sync_s: float  # a sync takes, at most
    storm_s: float
    collect_s: float  # between two collections
    wires: tuple[str, ...]  # of which each client speaks one

    @classmethod
    def draw(cls, rng: random.Random) -> ClusterPlan:
        is_duel = rng.random() < 0.5
        storm_s = rng.choice((0.5, 1.0, 3.0) if is_duel else (3.0, 8.0, 8.0, 20.0))
        if is_duel:
            books = [_duel(rng, storm_s)]
        else:
            books = [_book(rng, storm_s) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
            books += _heirs(rng, books, storm_s)
        books = [_with_modes(rng, book) for book in books]
        spare = rng.choice((0, 0, 1, 1, 2))
        return cls(
            bookies=max(book.shape[0] for book in books) + spare,
            links=_links(rng, is_duel),
            metadata=MetadataFaults(*(rng.choice((0.0, 0.0, 0.3 if is_duel else 0.1)) for _ in range(3))),
            books=tuple(books),
            chaos=_chaos(rng, storm_s, is_duel),
            damage=_damage(rng, books, spare, storm_s),
            dark_at_ack=_dark_at_ack(rng, books, is_duel),
            sync_s=rng.choice((0.001, 0.01, 0.05)),
            storm_s=storm_s,
            collect_s=rng.choice((1.0, 4.0) if any(book.deleted for book in books) else (1.0, 30.0, 30.0)),
            wires=rng.choice(WIRES),
        )


def _with_modes(rng: random.Random, book: BookPlan) -> BookPlan:
    """A ledger as it is, or in modes that version 3 of the protocol has."""
    defers = rng.random() < 0.25
    return replace(book, gives_ids=rng.random() < 0.25, defers=defers, forces=defers or rng.random() < 0.1)


def _dark_at_ack(rng: random.Random, books: list[BookPlan], is_duel: bool) -> int | None:
    """Often where something is forced, which no later write makes durable."""
    if rng.random() >= (0.5 if any(book.defers for book in books) else 0.25):
        return None
    return rng.randrange(4 if is_duel else 40)


def _links(rng: random.Random, is_duel: bool) -> LinkFaults:
    return LinkFaults(
        latency_s=rng.choice((0.001, 0.001, 0.02)),
        slow=rng.choice((0.0, 0.05, 0.2) if is_duel else (0.0, 0.0, 0.02)),
        split=rng.choice((0.0, 0.2)),
        reset=rng.choice((0.0, 0.05, 0.15) if is_duel else (0.0, 0.0, 0.01)),
        window_bytes=rng.choice((512, 16 * 1024, 64 * 1024)),
    )


def _chaos(rng: random.Random, storm_s: float, is_duel: bool) -> tuple[tuple[float, str], ...]:
    kinds = rng.sample(CHAOS, rng.randint(0, 4))
    count = rng.choice((0, 1, 3, 6) if is_duel else (0, 2, 5, 12)) if kinds else 0
    return tuple(sorted((rng.random() * storm_s, rng.choice(kinds)) for _ in range(count)))


def _duel(rng: random.Random, storm_s: float) -> BookPlan:
    return BookPlan(
        shape=rng.choice(SHAPES),
        digest="crc32c",
        password=b"",
        entries=rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 8)),
        largest=20,
        begins=0.0,
        pause_s=rng.choice((0.0, 0.01, 0.1, storm_s)),
        writer_end=rng.choice(("close", "kill", "kill", "idle")),
        waits=rng.random() < 0.5,
        tails=rng.random() < 0.3,
        looks=rng.random() < 0.1,
        recoverers=tuple(rng.random() * rng.choice((0.05, 0.3, storm_s)) for _ in range(rng.choice((0, 1, 1, 2)))),
        deleted="",
    )


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
        looks=rng.random() < 0.3,
        recoverers=tuple(soon + rng.random() * rng.choice((0.05, 2.0)) for _ in range(rng.choice((0, 1, 1, 2)))),
        deleted=rng.choice(("", "", "", "", "closed", "any time")),
    )


def _heirs(rng: random.Random, books: list[BookPlan], storm_s: float) -> list[BookPlan]:
    """Ledgers that take over the ids of deleted ones. (Who still wrote the old one would write the new one.)"""
    heirs = []
    for place, book in enumerate(books):
        if book.deleted and book.writer_end != "idle" and rng.random() < 0.5:
            heir = replace(
                _book(rng, storm_s),
                takes_id_of=place,
                accepts_silent=rng.random() < 0.5,
                password=rng.choice((book.password, b"another")),
            )
            # By another digest alone a client would tell an entry of the old one.
            heirs.append(replace(heir, digest=book.digest) if heir.password == book.password else heir)
    return heirs


def _damage(rng: random.Random, books: list[BookPlan], spare: int, storm_s: float) -> tuple[float, str] | None:
    """At most one, and only where entries have another copy and the bookie can be done without."""
    if rng.random() < 0.5 or not spare or any(book.shape[2] < 2 for book in books):
        return None
    return rng.random() * storm_s, rng.choice(DAMAGE)
