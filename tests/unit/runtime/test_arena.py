"""How much connections read in one turn of the loop."""

from __future__ import annotations

import asyncio

from tallystick.runtime.arena import (
    ARENA_BYTES,
    LEAST_READ_BYTES,
    READ_ON_EACH_TURN,
    SHORT_READ_BYTES,
    TURN_BYTES,
    TURN_READS,
    Arena,
)


class Connection:
    """One with very much to read."""

    def __init__(self, arena: Arena, host: str = "127.0.0.1") -> None:
        self._arena, self.is_reading, self.reads, self.host = arena, True, 0, host

    def turn(self) -> int:
        """A loop reads of it in one turn: as long as reads are full, 32 times at most."""
        size = 0
        for _ in range(32):
            if self.is_reading:
                self.reads += 1
                size += len(self._arena.received(len(self._arena.buffer), self, self.host))
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
        assert len(arena.buffer) == SHORT_READ_BYTES
        await asyncio.sleep(0)
        assert len(arena.buffer) == ARENA_BYTES


async def test_where_thousands_share_a_turn_ends_after_so_many_reads() -> None:
    """Of 4,000 connections each read brings 8 KiB: 1,000 reads came before any was the last of its connection, some 30
    ms of the loop."""
    arena = Arena()
    arena.share(0)
    connections = [Connection(arena) for _ in range(1024)]
    for _ in range(3):
        before = sum(connection.reads for connection in connections)
        for connection in connections:
            connection.turn()
        assert sum(connection.reads for connection in connections) - before <= TURN_READS + len(connections)
        await asyncio.sleep(0)


async def test_of_thousands_that_always_have_something_a_turn_reads_some() -> None:
    """A thousand short reads came in each turn, and each connection was stopped and went on: 25 ms of the loop."""
    arena = Arena()
    arena.share(0)
    connections = [Connection(arena, f"127.0.1.{number % 100}") for number in range(4000)]
    for connection in connections:
        connection.turn()
    of_turns = list[int]()
    for _ in range(100):
        await asyncio.sleep(0)
        before = sum(connection.reads for connection in connections)
        for connection in connections:
            connection.turn()
        of_turns.append(sum(connection.reads for connection in connections) - before)
    assert set(of_turns[1:]) == {READ_ON_EACH_TURN}, "behind the first, in which some read that did not rest yet"
    reads = [connection.reads for connection in connections]
    assert max(reads) - min(reads) <= 32, "each has its turns"
    honest = Connection(arena)
    honest.turn()
    assert not honest.is_reading
    await asyncio.sleep(0)
    assert honest.is_reading, "before all others"


async def test_who_rests_and_is_closed_takes_no_turn() -> None:
    arena = Arena()
    connections = [Connection(arena) for _ in range(3 * READ_ON_EACH_TURN)]
    arena.share(0)
    for connection in connections:
        connection.turn()
    for connection in connections[:-1]:
        arena.closed(connection, connection.host)
    await asyncio.sleep(0)
    assert [connection for connection in connections if connection.is_reading][-1] is connections[-1]
    assert not arena._resting._peers["127.0.0.1"]._waiting


async def test_a_fault_of_one_that_reads_on_leaves_the_others_their_turns() -> None:
    arena = Arena()
    connections = [Connection(arena) for _ in range(2 * READ_ON_EACH_TURN)]

    def fail() -> None:
        raise ValueError("a fault of ours")

    connections[0].read_on = fail  # type: ignore[method-assign]
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    while all(connection.is_reading for connection in connections):
        for connection in connections:
            connection.turn()
    for connection in connections:
        connection.turn()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [connection.is_reading for connection in connections] == [False] + [True] * (len(connections) - 1)


async def test_reads_that_leave_nothing_are_no_reason_to_rest() -> None:
    """A thousand producers with a small request each are read as ever."""
    arena = Arena()
    connections = [Connection(arena) for _ in range(4 * TURN_READS)]
    for connection in connections:
        arena.received(100, connection, connection.host)
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
