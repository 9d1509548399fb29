"""What ``ledger.py`` measures, how long and how often."""

from __future__ import annotations

from dataclasses import dataclass

TAIL_ENTRIES = 1000


@dataclass(frozen=True)
class Load:
    """One kind of round. ``size``: payload bytes; ``window``: requests in flight; ``verb``: what a reader is asked."""

    name: str
    size: int
    quorums: tuple[int, int, int] = (3, 3, 2)
    window: int = 1000
    verb: str = "load-reads"


ADDS = (
    Load("add 100 B, 3/3/2", 100),
    Load("add 1 KB, 3/3/2", 1024),
    Load("add 100 B, 3/2/2", 100, (3, 2, 2)),
    Load("add 1 KB, 3/2/2", 1024, (3, 2, 2)),
)
LATENCY = Load("add 1 KB, 3/3/2, one in flight", 1024, window=1)
STEADY_RATE = 2000
STEADY = Load("add 1 KB, 3/3/2, a steady 2,000/s", 1024)
# A striped ledger cannot be read in batches: each entry is a request of its own.
READS = (Load("read 1 KB, 3/3/2", 1024, window=4), Load("read 1 KB, 3/2/2", 1024, (3, 2, 2), window=2))
RANDOM = Load("read 1 KB, 3/3/2, single random entries", 1024, window=64, verb="load-random")
READERS = Load("read 1 KB, 3/3/2, 64 readers of 64 ledgers", 1024, window=64, verb="load-readers")
AFTER_WRITE = Load("read 1 KB, 3/3/2, right after the write", 1024, window=4)
RECOVERY = Load(f"recover {TAIL_ENTRIES} unconfirmed, 1 KB, 3/3/2", 1024)


# To one who follows the open ledger; ``window`` is the pause in ms. Where appends are rare nothing but the writer's own
# word, 100 ms later, says that an entry is confirmed.
FOLLOWS = (
    Load("follow 1 KB, an entry each ms", 1024, window=1),
    Load("follow 1 KB, an entry each 300 ms", 1024, window=300),
)
FORCE = Load("1,000 deferred adds of 1 KB and a force", 1024)


@dataclass(frozen=True)
class Plan:
    """How long and how often; seconds unless the name says otherwise."""

    limit: float
    reserve: float  # for the restarts and for cleaning up; no round begins in it
    rounds: int
    add: float
    read: float
    read_entries: int
    reader_entries: int  # of each of many ledgers
    fill: float  # writing those entries, at most
    latency: float
    recoveries: int
    follow: float  # and force
    warm_java: float  # at each payload size: a JVM's first ten seconds cost up to twice the CPU
    warm_ours: float
    default: bool  # the original with its default settings as a third side
    python: bool  # our cluster and client with the codec in Python as a side, where the compiled one is installed
    mixes: bool  # our client on the original's bookies, and the reverse


FULL = Plan(
    limit=520,
    reserve=25,
    rounds=3,
    add=2.2,
    read=1.5,
    read_entries=100_000,
    reader_entries=2000,
    fill=8.0,
    latency=1.5,
    recoveries=5,
    follow=3.0,
    warm_java=9.0,
    warm_ours=2.0,
    default=True,
    python=True,
    mixes=True,
)
QUICK = Plan(
    limit=420,
    reserve=18,
    rounds=2,
    add=1.0,
    read=1.0,
    read_entries=50_000,
    reader_entries=500,
    fill=4.0,
    latency=1.0,
    recoveries=2,
    follow=2.0,
    warm_java=4.0,
    warm_ours=1.0,
    default=False,
    python=True,
    mixes=False,
)
