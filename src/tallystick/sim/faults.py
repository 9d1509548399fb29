"""What goes wrong in one run: every probability is drawn from the seed, and some are zero (swarm testing)."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tallystick.bookkeeper.ledger.striping import Striping

SHAPES = ((3, 3, 2), (3, 2, 2), (4, 2, 2), (5, 3, 2), (4, 3, 2), (3, 3, 3), (4, 2, 1), (1, 1, 1))


@dataclass(frozen=True)
class Faults:
    """Probabilities for each message, and how often processes die. Times are simulated seconds."""

    lose_request: float
    lose_answer: float
    duplicate: float
    slow: float  # the message takes a heavy-tailed time, often longer than its caller waits
    kill_bookie: float  # expected number of deaths in a run
    power_loss: bool  # a death takes what was not synced, each record or not
    pause: float  # a bookie is silent for a while, then goes on
    metadata_slow: float
    writer_end: str  # close | kill | pause | go on

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        def some(most: float) -> float:
            return rng.choice((0.0, rng.random() * most))

        return cls(
            lose_request=some(0.25),
            lose_answer=some(0.25),
            duplicate=some(0.2),
            slow=some(0.3),
            kill_bookie=some(3.0),
            power_loss=rng.random() < 0.5,
            pause=some(2.0),
            metadata_slow=some(0.3),
            writer_end=rng.choice(("close", "kill", "pause", "go on")),
        )


@dataclass(frozen=True)
class Scenario:
    """Who takes part. Few entries find more protocol bugs a second than many."""

    striping: Striping
    bookies: int
    entries: int
    recoverers: int
    faults: Faults

    @classmethod
    def draw(cls, rng: random.Random) -> Scenario:
        shape = rng.choice(SHAPES)
        return cls(
            striping=Striping(*shape),
            bookies=shape[0] + rng.choice((0, 0, 1, 1, 2)),
            entries=rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 8)),
            recoverers=rng.choice((0, 1, 1, 1, 2)),
            faults=Faults.draw(rng),
        )
