"""What happens in one life of simulated replication, drawn from its seed; many faults are absent in many lives."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.sim.virtual.network import LinkFaults

STORM_S = 12.0
CHAOS = (
    "kill", "kill", "power loss", "power loss", "crash in an operation", "crash in an operation", "pause", "stop",
    "cut in", "cut out", "cut off", "reset", "forget", "full disk", "failing disk", "retention", "stranger",
)  # fmt: skip
EMPTY_DISK = "empty disk"  # instead of a slave's


def with_empty_disks(seed: int, strikes: tuple[tuple[float, str], ...]) -> tuple[tuple[float, str], ...]:
    """Returns what befalls the machines of a life, with the slaves that its seed may have come back without a log."""
    if seed % 9 not in (2, 3):
        return strikes
    rng = random.Random(f"{seed} {EMPTY_DISK}")
    moments = [rng.random() * STORM_S for _ in range(rng.choice((1, 1, 3)))]
    return tuple(sorted([*strikes, *((moment, EMPTY_DISK) for moment in moments)]))


@dataclass(frozen=True)
class HaPlan:
    """``original``: the master does not know our extension: nothing compares the logs, so nothing may part them."""

    settings: HaSettings
    sync_replicas: bool  # a send may wait for slaves
    sync_flush: bool
    slave_syncs: tuple[bool, ...]  # of each slave
    original: bool
    old: bool  # the master has messages at the begin
    strange: bool  # the first slave comes with a log of its own
    puts: tuple[float, ...]  # when something is sent
    links: LinkFaults
    chaos: tuple[tuple[float, str], ...]  # when, and what
    dark_at_promise: int | None  # all lose power at the instant of this one
    looks: tuple[float, ...]  # when somebody looks at queues and index
    sync_s: float  # a sync takes, at most

    @classmethod
    def draw(cls, rng: random.Random) -> HaPlan:
        slaves = rng.choice((1, 1, 2, 2, 3))
        original = rng.random() < 0.2
        kinds = rng.sample(CHAOS, rng.randint(0, 5))
        events = rng.choice((0, 3, 6, 12)) if kinds else 0
        return cls(
            settings=HaSettings(
                in_sync_replicas=rng.randint(1, slaves + 1),
                batch_bytes=rng.choice((100, 300, 1000)),
                max_gap_bytes=rng.choice((4000, 1 << 20)),
                copy_whole_log=rng.random() < 0.3,
                slave_timeout_ms=rng.choice((100, 1000)),
                sync_flush_timeout_ms=rng.choice((20, 1000)),
                out_of_sync_when_late=rng.random() < 0.3,
                heartbeat_ms=1000,
                housekeeping_ms=4000,
                retry_ms=1000,
                handshake_ms=200,
                greeting_ms=2000,
            ),
            sync_replicas=rng.random() < 0.8,
            sync_flush=rng.random() < 0.5,
            slave_syncs=tuple(rng.random() < 0.5 for _ in range(slaves)),
            original=original,
            old=rng.random() < 0.5,
            strange=not original and rng.random() < 0.2,
            puts=_puts(rng),
            links=LinkFaults(
                latency_s=rng.choice((0.001, 0.02)),
                slow=rng.choice((0.0, 0.05, 0.3)),
                split=0.3,
                reset=rng.choice((0.0, 0.01, 0.1)),
                window_bytes=rng.choice((500, 2000, 64 * 1024)),
                buffer_bytes=rng.choice((500, 1 << 30)),
            ),
            chaos=tuple(sorted((rng.random() * STORM_S, rng.choice(kinds)) for _ in range(events))),
            dark_at_promise=rng.randrange(15) if rng.random() < 0.3 else None,
            looks=tuple(rng.random() * STORM_S for _ in range(rng.choice((0, 0, 1)))),
            sync_s=rng.choice((0.001, 0.02)),
        )


def _puts(rng: random.Random) -> tuple[float, ...]:
    moment, moments = 0.0, list[float]()
    for _ in range(rng.choice((3, 10, 25))):
        moment += rng.choice((0.0, 0.01, 0.3, 2.0)) * rng.random()
        moments.append(min(moment, STORM_S - 0.5))
    return tuple(moments)
