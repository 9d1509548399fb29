"""Futures that fail together, in many turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tallystick.bookkeeper.ledger.late_failures import FAILED_A_TURN, LateFailures
from tallystick.errors import LedgerClosed, NotEnoughBookies

MANY = 3 * FAILED_A_TURN + 1


def futures_of(count: int) -> list[asyncio.Future[Any]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


def failed(futures: list[asyncio.Future[Any]]) -> int:
    """How many failed, and checks that these are the first."""
    count = sum(future.done() for future in futures)
    assert all(future.done() for future in futures[:count])
    for future in futures[:count]:
        future.exception()
    return count


async def test_few_fail_at_once_each_with_the_error_and_those_that_are_done_stay() -> None:
    failures, futures = LateFailures(asyncio.get_running_loop()), futures_of(3)
    futures[1].set_result(7)
    futures[2].cancel()
    failures.fail(futures, LedgerClosed("why", ledger=5))
    with pytest.raises(LedgerClosed, match="why"):
        await futures[0]
    assert await futures[1] == 7 and futures[2].cancelled()


async def test_many_fail_in_their_order_some_in_each_turn() -> None:
    failures, futures = LateFailures(asyncio.get_running_loop()), futures_of(MANY)
    others = futures_of(2)
    failures.fail(iter(futures), LedgerClosed("why", ledger=5))
    failures.fail(others, NotEnoughBookies())
    counts = [failed(futures)]
    while counts[-1] < MANY:
        assert not any(other.done() for other in others)
        await asyncio.sleep(0)
        counts.append(failed(futures))
    assert all(after - before <= FAILED_A_TURN for before, after in zip([0, *counts], counts, strict=False))
    assert len(counts) >= 4
    await asyncio.sleep(0)
    assert [type(other.exception()) for other in others] == [NotEnoughBookies] * 2
    failures.fail(more := futures_of(1), LedgerClosed())
    assert failed(more) == 1


@pytest.mark.parametrize("turns", [0, 1])
async def test_all_fail_when_the_loop_is_about_to_end(turns: int) -> None:
    before = asyncio.all_tasks()
    failures, futures = LateFailures(asyncio.get_running_loop()), futures_of(MANY)
    failures.fail(futures, LedgerClosed())
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert failed(futures) == MANY
