"""Appends that wait to be confirmed, and callers that wait for room."""

from __future__ import annotations

import asyncio

from tallystick.bookkeeper.ledger.pending import PendingAppends, Room
from tallystick.errors import NotEnoughBookies


async def test_futures_are_resolved_up_to_the_lac_and_their_bytes_leave() -> None:
    pending = PendingAppends(asyncio.get_running_loop())
    futures = [pending.add(last, size) for last, size in ((0, 5), (3, 7), (3, 0), (4, 1))]
    futures[0].cancel()  # its caller was
    assert pending.inflight_bytes == 13
    pending.confirmed(2)
    assert (len(pending), pending.inflight_bytes) == (3, 8)
    pending.confirmed(3)
    assert [future.done() for future in futures] == [True, True, True, False]
    assert (len(pending), pending.inflight_bytes) == (1, 1)


async def test_what_was_never_sent_fails_without_a_doubt() -> None:
    pending = PendingAppends(asyncio.get_running_loop())
    sent, unsent = pending.add(0, 1), pending.add(1, 1)
    pending.fail(NotEnoughBookies("there is none"), 1)
    failures = [future.exception() for future in (sent, unsent)]
    assert [isinstance(one, NotEnoughBookies) and one.ambiguous for one in failures] == [True, False]
    assert (len(pending), pending.inflight_bytes) == (0, 0)


async def test_room_is_given_to_one_at_a_time_and_to_all_at_the_end() -> None:
    full = True
    room = Room(asyncio.get_running_loop(), lambda: full)
    waiting = [asyncio.create_task(room.wait()) for _ in range(4)]
    await asyncio.sleep(0)
    room.wake()
    assert len(room) == 4
    full = False
    room.wake()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False, False]
    waiting[1].cancel()
    room.wake_all()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not room


async def test_nobody_overtakes_who_waits_for_room() -> None:
    """The room that there is belongs to who waited longest, also while that one is woken and does not run yet."""
    full, order = True, list[str]()
    room = Room(asyncio.get_running_loop(), lambda: full)

    async def enter(name: str) -> None:
        await room.wait()
        order.append(name)

    waiting = [asyncio.create_task(enter(name)) for name in "abc"]
    await asyncio.sleep(0)
    full = False
    room.wake()
    waiting.append(asyncio.create_task(enter("newcomer")))
    waiting[1].cancel()
    await asyncio.sleep(0)
    full = True
    await asyncio.sleep(0)
    full = False
    for _ in range(3):
        room.wake()
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["a", "c", "newcomer"] and not room


async def test_who_was_woken_and_finds_no_room_stays_the_first() -> None:
    full, order = True, list[str]()
    room = Room(asyncio.get_running_loop(), lambda: full)

    async def enter(name: str) -> None:
        await room.wait()
        order.append(name)

    waiting = [asyncio.create_task(enter(name)) for name in "ab"]
    await asyncio.sleep(0)
    full = False
    room.wake()
    full = True
    await asyncio.sleep(0)
    full = False
    for _ in range(2):
        room.wake()
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order == ["a", "b"]
