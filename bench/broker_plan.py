"""What ``broker.py`` measures, how long and how often."""

from __future__ import annotations

from dataclasses import dataclass

SIZE = 1024


@dataclass(frozen=True)
class Load:
    """One kind of sending: ``window`` messages, callers, connections or batches of ``batch`` without answer.

    ``size``: bytes of a message.
    """

    name: str
    how: str
    window: int
    batch: int = 1
    size: int = SIZE


BATCHES = Load("send 1 KB in batches of 100, 4 in flight", "batch", 4, 100)
SENDS = (
    Load("send 1 KB, one in flight", "sync", 1),
    Load("send 1 KB, 1,000 in flight", "async", 1000),
    BATCHES,
)
PULLS = {"pull 1 KB from the master": "master", "pull 1 KB from the slave": "slave"}
CATCH_UPS = tuple(
    Load(f"catch-up of a slave, messages of {name}", "batch", 4, 100, size)
    for name, size in (("100 B", 100), ("1 KB", 1024), ("4 KB", 4096))
)
CONSUMERS = 100
PUSH = Load(f"consume 1 KB by push, {CONSUMERS} consumers", "push", CONSUMERS, 100)
CONNECTIONS = tuple(
    Load(f"send 1 KB over {count:,} connections, one in flight each", "connections", count)
    for count in (1, 16, 100, 1000)
)


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
    catch_up_messages: int  # fewer of large ones
    push_messages: int  # that each consumer gets, whole batches
    python: bool  # our brokers and client with the codec in Python as a side, where the compiled one is installed
    mixes: bool  # each client on the other's brokers too, for all loads


FULL = Plan(
    limit=640,
    reserve=15,
    rounds=3,
    send=2.0,
    pull=2.5,
    warm_java=9.0,
    warm_ours=2.0,
    catch_up_messages=200_000,
    push_messages=4000,
    python=True,
    mixes=True,
)
QUICK = Plan(
    limit=420,
    reserve=5,
    rounds=1,
    send=1.0,
    pull=0.8,
    warm_java=1.5,
    warm_ours=0.5,
    catch_up_messages=60_000,
    push_messages=500,
    python=True,
    mixes=False,
)


def title(load: Load, mode: str) -> str:
    """The name of sends to a pair that replicates in this mode."""
    return f"{load.name}, {mode} replication"
