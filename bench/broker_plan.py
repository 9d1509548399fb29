"""What ``broker.py`` measures, how long and how often."""

from __future__ import annotations

from dataclasses import dataclass

SIZE = 1024


@dataclass(frozen=True)
class Load:
    """One kind of sending: ``window`` messages, callers or batches of ``batch`` without answer."""

    name: str
    how: str
    window: int
    batch: int = 1


BATCHES = Load("send 1 KB in batches of 100, 4 in flight", "batch", 4, 100)
SENDS = (
    Load("send 1 KB, one in flight", "sync", 1),
    Load("send 1 KB, 1,000 in flight", "async", 1000),
    BATCHES,
)
PULLS = {"pull 1 KB from the master": "master", "pull 1 KB from the slave": "slave"}
CATCH_UP = "catch-up of a slave, queues built"


@dataclass(frozen=True)
class Plan:
    """How long and how often; seconds unless the name says otherwise."""

    limit: float
    reserve: float  # for cleaning up; no round begins in it
    rounds: int
    send: float
    pull: float
    warm_java: float  # of each load: a JVM's first half minute costs up to twice the CPU
    warm_ours: float
    catch_up_messages: int
    mixes: bool  # each client on the other's brokers too, for all loads


FULL = Plan(
    limit=510,
    reserve=15,
    rounds=3,
    send=3.0,
    pull=3.0,
    warm_java=9.0,
    warm_ours=2.0,
    catch_up_messages=400_000,
    mixes=True,
)
QUICK = Plan(
    limit=90,
    reserve=5,
    rounds=1,
    send=1.0,
    pull=0.8,
    warm_java=1.5,
    warm_ours=0.5,
    catch_up_messages=60_000,
    mixes=False,
)
