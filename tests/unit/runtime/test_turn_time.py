from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from tallystick.runtime.turn_time import LEAST_S, TURN_S, TurnTime


async def test_a_part_has_what_is_left_of_its_turn_and_a_little_in_any_case() -> None:
    time = TurnTime.of(asyncio.get_running_loop())
    assert time.ends(100.0, 0.001) == 100.001
    assert time.ends(100.0, TURN_S) == 100.0 + TURN_S
    half = 100.0 + TURN_S / 2
    assert time.ends(half, TURN_S) == pytest.approx(100.0 + TURN_S), "whatever it was that took the first half"
    assert time.ends(101.0, TURN_S) == pytest.approx(101.0 + LEAST_S)
    assert time.ends(101.0, LEAST_S / 2) == pytest.approx(101.0 + LEAST_S / 2)
    await asyncio.sleep(0)
    assert time.ends(101.0, TURN_S) == 101.0 + TURN_S


async def test_all_parts_of_a_loop_share_its_turn() -> None:
    loop = asyncio.get_running_loop()
    assert TurnTime.of(loop) is TurnTime.of(loop)
    other = asyncio.new_event_loop()
    try:
        assert TurnTime.of(other) is not TurnTime.of(loop)
    finally:
        other.close()


def test_it_is_gone_with_its_loop() -> None:
    loop = asyncio.new_event_loop()
    time = ref(TurnTime.of(loop))
    loop.close()
    del loop
    gc.collect()
    assert time() is None
