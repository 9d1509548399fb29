"""Many simulated lives one after another, of whatever kind."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Outcome:
    """How one schedule ended; ``violation`` None is a pass."""

    seed: int
    violation: str | None
    promise_count: int  # what somebody was told is safe: with nothing of that, a pass proves nothing
    fingerprint: str  # equal for equal seeds, in every process
    trace: tuple[str, ...] = ()  # every step, if they were kept


class Life(Protocol):
    """Runs the life of a seed to its end."""

    def __call__(self, seed: int, *, keep_trace: bool = False) -> Outcome: ...


@dataclass(frozen=True)
class Summary:
    """The counts and failures of a series."""

    lives: int
    promise_count: int
    failures: tuple[Outcome, ...]
    seconds: float


def run_many(
    run: Callable[[int], Outcome],
    seeds: Iterable[int],
    *,
    seconds: float | None = None,
    stop_at: int = 5,
    progress: Callable[[int], None] | None = None,
) -> Summary:
    """Run seeds until they, the time, or the patience (``stop_at`` failures) are used up."""
    start_s, lives, promise_count, failures = time.monotonic(), 0, 0, list[Outcome]()
    reported = start_s
    for seed in seeds:
        try:
            outcome = run(seed)
        except BaseException as error:  # a bug of the simulator itself
            error.add_note(f"in the life of seed {seed}")
            raise
        gc.collect(1)  # a life leaves cycles, which grew too old while it ran to be collected soon
        lives, promise_count = lives + 1, promise_count + outcome.promise_count
        if outcome.violation:
            failures.append(outcome)
        now = time.monotonic()
        if progress and now - reported >= 10.0:
            reported = now
            progress(lives)
        if (seconds is not None and now - start_s >= seconds) or len(failures) >= stop_at:
            break
    return Summary(lives, promise_count, tuple(failures), time.monotonic() - start_s)


def random_start() -> int:
    """Returns a first seed that no earlier series used."""
    return random.SystemRandom().randrange(1 << 32)
