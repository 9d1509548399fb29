"""What a quota promises of a simulated stream without faults: too large a backlog is refused, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tallystick.sim.streams_owner import Owner
from tallystick.sim.streams_shared import Shared

REFUSED_S = 30.0  # in which so much is appended that it is refused
PAUSE_S = 0.2
CONFIRMED_S = 1.0  # in which readers hear of the last append, and what does not wait is answered
TAKEN_S = 5.0  # in which appends are taken again once nobody has a backlog


async def check_refusals(shared: Shared, owner: Owner, drain_all: Callable[[str], Awaitable[None]]) -> None:
    """Append until that is refused, which it must be if there is a cursor; see what the policy says of who would wait;
    and go on when all is consumed."""
    judge, clock = shared.judge, asyncio.get_running_loop()
    if not any(history.is_made for history in judge.cursors.values()):
        return
    until = clock.time() + REFUSED_S
    while owner.append() is not None:
        if clock.time() > until:
            judge.fail("S7", f"appends are taken, whatever the backlog is, of {shared.plan.quota_bytes} bytes")
        await asyncio.sleep(PAUSE_S)
    await owner.wait()
    owner.append_batch(1)
    await asyncio.sleep(CONFIRMED_S)
    if owner.is_waiting != (shared.plan.quota_policy == "producer_request_hold"):
        judge.fail("S7", f"{shared.plan.quota_policy}: an append waits is {owner.is_waiting}")
    await drain_all("early")
    try:
        async with asyncio.timeout(TAKEN_S):
            await owner.wait()  # before there is an append that does not wait, and may overtake this
    except TimeoutError:
        judge.fail("S9", "nobody has a backlog, and an append waits")
    until = clock.time() + TAKEN_S
    while owner.append() is None:
        if clock.time() > until:
            judge.fail("S9", "nobody has a backlog, and appends are refused")
        await asyncio.sleep(PAUSE_S)
