"""What happens in one life of simulated brokers, drawn from its seed; many faults are absent in many lives."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tallystick.rocketmq.broker.role import Role
from tallystick.sim.chaos import LONGEST_S
from tallystick.sim.virtual.network import LinkFaults

CHAOS = (
    "kill", "power loss", "stop", "pause", "cut in", "cut out", "cut off", "reset", "full disk", "crash in an operation"
)  # fmt: skip
TURNS = ("", "", "", "set back", "promote", "empty master")  # what happens once the faults have ended


@dataclass(frozen=True)
class ProducerPlan:
    """One producer and its topic. Times are seconds after the begin."""

    topic: str
    messages: int
    largest: int  # bytes that a body has beside its name
    begins: float
    pause_s: float  # between two sends, at most
    batches: float  # probability that a send is a batch


@dataclass(frozen=True)
class GroupPlan:
    """One group of consumers."""

    members: int  # at a time
    ordered: bool
    nacks: float  # probability that a message is given back


@dataclass(frozen=True)
class TablesPlan:
    """One who uses the tables of a life."""

    steps: int
    pause_s: float  # between two of them, at most


@dataclass(frozen=True)
class SinkPlan:
    """One application that sends each message once. Times are seconds after the begin."""

    topic: str
    batches: int
    partitions: int  # of a batch, at most
    rows: int  # of a partition, at most
    largest: int  # bytes that a body has beside its name
    begins: float
    pause_s: float  # between two batches, at most
    deaths: float  # probability that an attempt is killed, or taken for dead
    twins: float  # probability that two attempts run at once


@dataclass(frozen=True)
class BrokersPlan:
    """One life."""

    role: Role  # of the master
    sync_flush: bool  # of the master
    slave_syncs: tuple[bool, ...]  # of each slave
    whole_log: bool  # an empty slave asks for it
    queues: int  # of a topic
    file_bytes: int  # of a file of the log
    producers: tuple[ProducerPlan, ...]
    groups: tuple[GroupPlan, ...]
    handles: int  # open files that a store may have
    held_bytes: int  # that a server may hold for its clients
    deletions: tuple[tuple[float, str], ...]  # when, and which topic
    turn: str
    links: LinkFaults
    chaos: tuple[tuple[float, str], ...]  # when, and what
    dark_at_ack: int | None  # all brokers lose power at the instant of this acknowledgement
    sync_s: float  # a sync takes, at most
    storm_s: float
    flush_ms: int = 500  # between two flushes that nobody waits for
    tables: TablesPlan | None = None
    sinks: tuple[SinkPlan, ...] = ()
    longest_s: float = LONGEST_S  # that something lasts which befalls a machine

    @classmethod
    def draw(cls, rng: random.Random) -> BrokersPlan:
        storm_s = rng.choice((3.0, 8.0, 8.0, 20.0))
        kinds = rng.sample(CHAOS, rng.randint(0, 4))
        events = sorted(
            (rng.random() * storm_s, rng.choice(kinds)) for _ in range(rng.choice((0, 2, 5, 12)) if kinds else 0)
        )
        return cls(
            role=rng.choice((Role.ASYNC_MASTER, Role.SYNC_MASTER)),
            sync_flush=rng.random() < 0.6,
            slave_syncs=tuple(rng.random() < 0.5 for _ in range(rng.choice((0, 1, 1, 1, 2)))),
            whole_log=rng.random() < 0.5,
            queues=rng.choice((1, 2, 3)),
            file_bytes=rng.choice((4096, 16 * 1024)),
            producers=tuple(_producer(rng, storm_s) for _ in range(rng.choice((1, 1, 2)))),
            groups=tuple(_group(rng) for _ in range(rng.choice((1, 1, 2)))),
            handles=rng.choice((8, 256)),
            held_bytes=rng.choice((64 * 1024, 1024 * 1024)),
            deletions=tuple((rng.random() * storm_s, rng.choice("AB")) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
            turn=rng.choice(TURNS),
            links=LinkFaults(
                latency_s=rng.choice((0.001, 0.001, 0.02)),
                slow=rng.choice((0.0, 0.0, 0.02)),
                split=rng.choice((0.0, 0.2)),
                reset=rng.choice((0.0, 0.0, 0.01)),
                window_bytes=rng.choice((512, 16 * 1024, 64 * 1024)),
            ),
            chaos=tuple(events),
            dark_at_ack=rng.randrange(30) if rng.random() < 0.25 else None,
            sync_s=rng.choice((0.001, 0.01, 0.05)),
            storm_s=storm_s,
        )


def _group(rng: random.Random) -> GroupPlan:
    return GroupPlan(members=rng.choice((1, 1, 2)), ordered=rng.random() < 0.25, nacks=rng.choice((0.0, 0.0, 0.1)))


def _producer(rng: random.Random, storm_s: float) -> ProducerPlan:
    return ProducerPlan(
        topic=rng.choice(("A", "A", "B")),
        messages=rng.choice((1, 5, 20, 60)),
        largest=rng.choice((0, 20, 200, 1500)),
        begins=rng.random() * storm_s / 4,
        pause_s=rng.choice((0.0, 0.05, storm_s / 10)),
        batches=rng.choice((0.0, 0.0, 0.3)),
    )
