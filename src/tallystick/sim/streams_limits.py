"""Lives of a simulated stream whose cursors pass over what is too old, or too much, or which refuses what is too much;
and some with long messages, or messages in chunks.

What is drawn here is drawn apart, so that lives without limits are not moved by more of them.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tallystick.sim.streams_chunks import chunked
from tallystick.sim.streams_plan import StreamsPlan

PART = 0.2  # of the lives that can have limits
REFUSING_PART = 0.1  # of the others of these
BULKY_PART = 0.4  # of the rest, where ZLIB compresses
BULK = 300_000  # which ZLIB is estimated to compress in 5 ms


def limited(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan of a seed, with limits if it is to have some: messages expire, or a backlog is evicted."""
    rng = random.Random(f"limits {seed}")
    if not can_be_limited(plan):
        return _long(plan, seed)
    if rng.random() >= PART:
        return _refusing(plan, seed)
    if rng.random() < 0.5:
        plan = replace(plan, ttl_s=rng.choice((0.1, 0.5, 2.0)))
    else:
        plan = replace(plan, quota_bytes=rng.choice((500, 2_000, 5_000)))
    owners = tuple(replace(owner, trims=0.3) for owner in plan.owners)
    cursors = tuple(replace(cursor, pause_s=rng.choice((cursor.pause_s, 1.0))) for cursor in plan.cursors)
    return replace(plan, owners=owners, cursors=cursors, max_entries=rng.choice((3, 10)))


def _refusing(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan, or one whose backlog is bounded. Its owners do not wait for that: none overtakes itself."""
    rng = random.Random(f"refusals {seed}")
    if rng.random() >= REFUSING_PART:
        return _long(plan, seed)
    policy = rng.choice(("producer_request_hold", "producer_exception"))
    owners = tuple(replace(owner, batches=0.0, numbered_batches=0.0) for owner in plan.owners)
    return replace(plan, quota_bytes=rng.choice((500, 1_500)), quota_policy=policy, owners=owners)


def _long(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan, or one with long messages, or with messages in chunks."""
    plan = chunked(plan, seed)
    return plan if plan.has_chunks else _bulky(plan, seed)


def _bulky(plan: StreamsPlan, seed: int) -> StreamsPlan:
    """Returns the plan, or one whose owners compress some messages beside the loop."""
    if plan.compression != "zlib" or random.Random(f"bulk {seed}").random() >= BULKY_PART:
        return plan
    return replace(plan, bulk=BULK)


def can_be_limited(plan: StreamsPlan) -> bool:
    """Whether there are cursors, one stream to its end, and messages that say when they were published."""
    is_one = not plan.deletions and plan.terminated_at is None
    return bool(plan.cursors) and is_one and plan.entry_format == "pulsar"
