"""How much connections read in one turn of the loop."""

from __future__ import annotations

import asyncio

from tallystick.runtime.arena import ARENA_BYTES, LEAST_READ_BYTES, SHORT_READ_BYTES, TURN_BYTES, Arena


class Connection:
    """One with very much to read."""

    def __init__(self, arena: Arena) -> None:
        self._arena, self.is_reading = arena, True

    def turn(self) -> int:
        """A loop reads of it in one turn: as long as reads are full, 32 times at most."""
        size = 0
        for _ in range(32):
            if self.is_reading:
                size += len(self._arena.received(len(self._arena.buffer), self))
        return size

    def rest(self) -> None:
        self.is_reading = False

    def read_on(self) -> None:
        self.is_reading = True


async def test_a_turn_in_which_much_came_reads_little_more() -> None:
    """1,900 connections with half a frame each were a turn of 0.8 s, and memory beyond any bound of what they hold."""
    arena = Arena()
    connections = [Connection(arena) for _ in range(1024)]  # as many as a loop finds ready at once
    for _ in range(3):
        total_bytes = sum(connection.turn() for connection in connections)
        assert TURN_BYTES <= total_bytes <= TURN_BYTES + 1024 * SHORT_READ_BYTES
        await asyncio.sleep(0)
        assert all(connection.is_reading for connection in connections) and len(arena.buffer) == ARENA_BYTES


async def test_what_is_shared_out_counts_from_the_next_turn_where_reads_are_short() -> None:
    arena = Arena()
    connection = Connection(arena)
    arena.share(100_000)
    assert len(arena.buffer) == 100_000
    while connection.is_reading:
        connection.turn()
    assert len(arena.buffer) == SHORT_READ_BYTES
    arena.share(0)
    assert len(arena.buffer) == SHORT_READ_BYTES
    await asyncio.sleep(0)
    assert len(arena.buffer) == LEAST_READ_BYTES
