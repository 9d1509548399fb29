"""Connections that ended, and are forgotten over many turns of the loop, as thousands may end in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tallystick.runtime.turn_steps import TurnSteps

Peer = TypeVar("Peer")


class EndedConnections(Generic[Peer]):
    """Calls ``forget`` once for each connection that is added. Must be made on a running loop."""

    def __init__(self, forget: Callable[[Peer], None], each_turn: int) -> None:
        """``each_turn`` bounds how many are forgotten in one turn."""
        self._forget = forget
        self._pending: deque[Peer] = deque()
        self._steps = TurnSteps(each_turn)

    def add(self, connection: Peer) -> None:
        self._pending.append(connection)
        if len(self._pending) == 1:
            self._steps.run(self)

    def make_way(self) -> None:
        """Forget the first one, if any: call it for a new connection, before that takes the place of a living one."""
        if self._pending:
            self._forget(self._pending.popleft())

    def forget_all(self) -> None:
        """Forget all at once, as the server stops."""
        for _ in self:
            pass

    # The steps, no generator: that would end with the first fault, and all others would be kept for ever.

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        if not self._pending:
            raise StopIteration
        self._forget(self._pending.popleft())
