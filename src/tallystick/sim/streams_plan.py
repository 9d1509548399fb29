"""What happens in one life of a simulated stream, drawn from its seed; many faults are absent in many lives.

Half of the lives are *duels*: two who take the stream from each other within seconds, with few appends. They find more
faults of a change of owner a second than the long lives, which have everything else. Half are *rich*: they have also
what most users do seldom. What is rich of a seed is drawn apart, so that the other half is not moved by more of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TypeVar

from tallystick.bookkeeper.stream.settings import UNLIMITED
from tallystick.sim.cluster_hosts import CLIENT
from tallystick.sim.store_service import StoreFaults
from tallystick.sim.virtual.network import LinkFaults

T = TypeVar("T")

EVICTION = "consumer_backlog_eviction"
DEDUP_INTERVAL = 1_000  # more than any life has
SHAPES = ((3, 2, 2), (3, 3, 2), (2, 2, 2), (1, 1, 1))
CHAOS = (
    "kill", "power loss", "stop", "pause", "cut off", "reset", "kill of a client", "pause of a client",
    "cut of a client", "cut from the metadata", "expiry of a client",
)  # fmt: skip


class Rich:
    """What a rich life has more than others; of the rest it draws the first of all choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(~seed)
        self._is_rich = self._random.random() < 0.5

    def choice(self, absent: T, *others: T) -> T:
        return self._random.choice((absent, *others)) if self._is_rich else absent


@dataclass(frozen=True)
class OwnerPlan:
    """One would-be owner. ``takes_over`` and what follows are probabilities of each of its steps."""

    begins: float  # seconds after the begin
    takes_over: float  # it fences whoever is there
    burst: int  # appends of a step, at most
    pause_s: float  # between steps, at most
    batches: float
    waits: float  # for the acknowledgements of a step
    rolls: float
    trims: float
    hands_over: float  # it closes the stream
    numbers: float  # appends have a producer and a sequence
    repeats: float  # of those, such that are told twice
    numbered_batches: float  # of those, such that have several messages
    races: float  # what a step does beside appends is done at once


@dataclass(frozen=True)
class CursorPlan:
    """One durable cursor, and who consumes by it."""

    name: str
    begins: float
    consumers: int
    most: int  # messages of one read
    singles: float  # they are acknowledged one by one, in any order, and not up to the newest
    forgets: float  # a message is not acknowledged, and comes again
    pause_s: float
    seeks: float
    time_seeks: float
    takes_over: float
    leaves: float  # after a step, so that somebody else has the cursor
    deletes: float  # then it is deleted, and begins anew
    lag_s: float  # until a message is acknowledged, at most: others are while that is saved


@dataclass(frozen=True)
class StreamsPlan:
    """One life."""

    bookies: int
    shape: tuple[int, int, int]  # ensemble, write quorum, ack quorum
    links: LinkFaults
    metadata: StoreFaults
    owners: tuple[OwnerPlan, ...]
    cursors: tuple[CursorPlan, ...]
    followers: int
    lookers: int
    chaos: tuple[tuple[float, str], ...]  # when, and what
    lease_s: float
    no_quorum_s: float  # a writer waits so long for bookies
    max_entries: int  # of a ledger
    max_age_s: float
    max_cursor_entries: int  # of a cursor ledger
    dedup_interval: int  # numbered entries, after which the numbers are saved
    retention_s: float  # -1: for ever
    ttl_s: float  # messages expire; -1: never
    quota_bytes: int  # of a backlog; -1: it may have any
    quota_policy: str  # what becomes of a larger one
    largest: int  # payload bytes
    bulk: int  # of some payloads, so that they are compressed beside the loop
    compression: str | None
    entry_format: str  # of those who read
    has_chunks: bool  # messages come in chunks, as others than our owners write them
    terminated_at: float | None  # by some owner
    is_deleted: bool  # in the end
    deletions: tuple[float, ...]  # when somebody deletes the stream, while others use it
    sync_s: float  # a sync takes, at most
    storm_s: float
    wires: tuple[str, ...]  # of which each client speaks one

    @property
    def saves_numbers(self) -> bool:
        """Whether numbers are saved before a stream is closed or trimmed."""
        return self.dedup_interval < DEDUP_INTERVAL

    @property
    def refuses(self) -> bool:
        """Whether appends are refused, or wait, while the backlog is too large."""
        return self.quota_bytes != UNLIMITED and self.quota_policy != EVICTION

    @classmethod
    def draw(cls, rng: random.Random, rich: Rich) -> StreamsPlan:
        is_duel = rng.random() < 0.5
        storm_s = rng.choice((1.0, 3.0, 6.0) if is_duel else (6.0, 12.0, 20.0))
        shape = rng.choice(SHAPES)
        entry_format = rng.choice(("pulsar", "pulsar", "pulsar", "raw"))
        return cls(
            bookies=shape[0] + rng.choice((0, 1, 1, 2)),
            shape=shape,
            links=_links(rng, is_duel),
            metadata=_metadata(rng),
            owners=tuple(
                _owner(rng, rich, storm_s, entry_format) for _ in range(2 if is_duel else rng.choice((1, 2, 3)))
            ),
            cursors=_cursors(rng, rich, storm_s, is_duel, entry_format),
            followers=rng.choice((0, 0, 1) if is_duel else (0, 1, 1, 2)),
            lookers=rng.choice((0, 0, 1)),
            chaos=_chaos(rng, storm_s, is_duel),
            lease_s=rng.choice((0.5, 1.0, 2.0)),
            no_quorum_s=CLIENT.no_quorum_s,
            max_entries=rng.choice((1, 2, 3, 5, 10, 100)),
            max_age_s=rng.choice((0.5, 3.0, 1000.0, 1000.0)),
            max_cursor_entries=rich.choice(50_000, 1, 2, 5),
            dedup_interval=DEDUP_INTERVAL,
            retention_s=rng.choice((-1.0, 0.0, 0.0, 2.0)),
            ttl_s=-1.0,
            quota_bytes=-1,
            quota_policy=EVICTION,
            bulk=0,
            largest=rng.choice((0, 20, 20, 300)),
            compression=None if entry_format == "raw" else rng.choice((None, None, "lz4", "zlib")),
            entry_format=entry_format,
            has_chunks=False,
            terminated_at=rng.random() * storm_s if rng.random() < 0.1 else None,
            is_deleted=rng.random() < 0.15,
            deletions=tuple(storm_s * at for at in rich.choice((), (), (0.5,), (0.3, 0.6))),
            sync_s=rng.choice((0.001, 0.01, 0.05)),
            storm_s=storm_s,
            wires=rng.choice((("auto",), ("auto",), ("v3",), ("auto", "v2", "v3"))),
        )


def _links(rng: random.Random, is_duel: bool) -> LinkFaults:
    return LinkFaults(
        latency_s=rng.choice((0.001, 0.001, 0.02)),
        slow=rng.choice((0.0, 0.05, 0.2) if is_duel else (0.0, 0.0, 0.02)),
        split=rng.choice((0.0, 0.2)),
        reset=rng.choice((0.0, 0.05, 0.1) if is_duel else (0.0, 0.0, 0.01)),
        window_bytes=rng.choice((512, 16 * 1024, 64 * 1024)),
    )


def _metadata(rng: random.Random) -> StoreFaults:
    return StoreFaults(
        lose_request=rng.choice((0.0, 0.0, 0.1)),
        lose_response=rng.choice((0.0, 0.0, 0.1, 0.3)),
        slow=rng.choice((0.0, 0.0, 0.1)),
        longest_lag_s=rng.choice((0.0, 0.0, 0.05, 1.0)),
    )


def _owner(rng: random.Random, rich: Rich, storm_s: float, entry_format: str) -> OwnerPlan:
    return OwnerPlan(
        begins=rng.random() * rng.choice((0.0, 0.1, storm_s / 2)),
        takes_over=rng.choice((0.0, 0.1, 1.0)),
        burst=rng.choice((1, 3, 10)),
        pause_s=rng.choice((0.0, 0.05, 0.5)),
        batches=rng.choice((0.0, 0.3)),
        waits=rng.choice((0.0, 0.5, 1.0)),
        rolls=rng.choice((0.0, 0.0, 0.2)),
        trims=rng.choice((0.0, 0.1)),
        hands_over=rng.choice((0.0, 0.05)),
        numbers=0.0 if entry_format == "raw" else rng.choice((0.0, 0.5)),
        repeats=rng.choice((0.0, 0.2)),
        numbered_batches=rich.choice(0.0, 0.0, 0.5),
        races=rich.choice(0.0, 0.5, 1.0),
    )


def _cursors(
    rng: random.Random, rich: Rich, storm_s: float, is_duel: bool, entry_format: str
) -> tuple[CursorPlan, ...]:
    count = rng.choice((0, 1) if is_duel else (0, 1, 1, 2))
    return tuple(_cursor(rng, rich, storm_s, f"c{number}", entry_format) for number in range(count))


def _cursor(rng: random.Random, rich: Rich, storm_s: float, name: str, entry_format: str) -> CursorPlan:
    return CursorPlan(
        name=name,
        begins=rng.random() * rng.choice((0.0, 0.1, storm_s / 2)),
        consumers=rng.choice((1, 2)),
        most=rng.choice((1, 5, 100)),
        singles=rng.choice((0.0, 0.5, 1.0)),
        forgets=rng.choice((0.0, 0.1)),
        pause_s=rng.choice((0.0, 0.1, 1.0)),
        seeks=rng.choice((0.0, 0.0, 0.05)),
        time_seeks=0.0 if entry_format == "raw" else rich.choice(0.0, 0.1, 0.3),
        takes_over=rng.choice((0.0, 0.1, 1.0)),
        leaves=rich.choice(0.02, 0.1, 0.3),
        deletes=rich.choice(0.0, 0.0, 0.3),
        lag_s=0.0,
    )


def _chaos(rng: random.Random, storm_s: float, is_duel: bool) -> tuple[tuple[float, str], ...]:
    kinds = rng.sample(CHAOS, rng.randint(0, 5))
    count = rng.choice((0, 1, 3, 6) if is_duel else (0, 3, 6, 12)) if kinds else 0
    return tuple(sorted((rng.random() * storm_s, rng.choice(kinds)) for _ in range(count)))
