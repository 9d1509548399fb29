"""Lists of all entries of a ledger, made on a thread, one after another: the loop goes on beside them.

One list may take seconds, and a snapshot of a ledger with millions of entries. So the snapshot is made when the thread
is free for it: there is one at a time, less than a tenth of what the index of its ledger takes. A list that waits is a
few objects.

Whoever reaches the port can ask for as many as it likes. Those that wait are bounded, all together and those of one
connection, and hosts and their connections have their turns. With all places taken a newcomer has that of the oldest of
the host with most of them (``runtime/places.py``), which is refused. A list ends with its connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.long_polls import Requester
from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.places import Places
from tallystick.runtime.turn_order import MOST_S, TurnOrderCore
from tallystick.runtime.worker import Worker

MOST_WAITING = 64
MOST_OF_ONE = 32  # connection

Snapshot = Callable[[], StoredIds | Code]  # the code says why there is none


@dataclass(slots=True, eq=False)
class _Order:
    owner: Requester
    snapshot: Snapshot
    done: Callable[[Code, bytes], None]
    is_given_up: bool = False  # the thread looks at it


class EntryLists:
    """Make lists, encoded by ``encode``, which returns None for one that is too long for a response. All methods run on
    the loop."""

    def __init__(
        self, worker: Worker, encode: Callable[[Iterator[range]], bytes | None], failed: Callable[[Exception], None]
    ) -> None:
        """``failed`` hears of an error that leaves a list without a response."""
        self._worker, self._encode, self._failed = worker, encode, failed
        self._waiting: dict[Requester, deque[_Order]] = {}
        self._turns: TurnOrderCore[Requester] = TurnOrderCore()  # of these
        self._places: Places[_Order] = Places(MOST_WAITING)
        self._making: _Order | None = None
        self._closed = False

    def list(self, owner: Requester, snapshot: Snapshot, done: Callable[[Code, bytes], None]) -> None:
        """Call ``done`` with a code and the list of what ``snapshot`` returns when its turn comes, unless ``owner`` was
        forgotten. It is called with TOO_MANY_REQUESTS, now or later, if too many wait."""
        order, own = _Order(owner, snapshot, done), self._waiting.get(owner, ())
        goes = order if len(own) >= MOST_OF_ONE else self._places.arrived(order, owner.peer)
        if goes is order:
            done(Code.TOO_MANY_REQUESTS, b"")
            return
        if goes is not None:
            self._take(goes)
            # Not within the call of another connection: that is served in this turn.
            asyncio.get_running_loop().call_soon(goes.done, Code.TOO_MANY_REQUESTS, b"")
        self._waiting.setdefault(owner, deque()).append(order)
        self._turns.add(owner, owner.peer)
        self._make_next()

    def forget(self, owner: Requester) -> None:
        """A connection has ended."""
        for order in tuple(self._waiting.get(owner, ())):
            self._take(order)
        self._turns.discard(owner, owner.peer)
        if self._making is not None and self._making.owner is owner:
            self._making.is_given_up = True

    def close(self) -> None:
        """End the list that is being made, and make no other."""
        self._closed = True

    def _take(self, order: _Order) -> None:
        """It waits no longer."""
        self._places.left(order)
        queue = self._waiting[order.owner]
        queue.remove(order)
        if not queue:
            del self._waiting[order.owner]
            if order.owner in self._turns:
                self._turns.discard(order.owner, order.owner.peer)

    def _next(self) -> _Order:
        """Take the one whose turn it is; some wait."""
        owner = self._turns.pop()
        order = self._waiting[owner][0]
        self._take(order)
        if owner in self._waiting:
            self._turns.add(owner, owner.peer)
        self._turns.spent(owner, owner.peer, MOST_S)  # or longer: by less, each newcomer had dozens made before others
        return order

    def _make_next(self) -> None:
        while self._turns and self._making is None and not self._closed:
            order = self._next()
            ids = order.snapshot()
            if isinstance(ids, StoredIds):
                self._make(order, ids)
            else:
                order.done(ids, b"")

    def _make(self, order: _Order, ids: StoredIds) -> None:
        self._making = order

        def made(data: bytes | None, error: Exception | None) -> None:
            self._making = None
            if error is not None:
                self._failed(error)
            elif not (self._closed or order.is_given_up):
                order.done(Code.OK, data) if data is not None else order.done(Code.IO_ERROR, b"")
            self._make_next()

        self._worker.submit(lambda: self._encode(self._while_wanted(order, ids.runs())), made)

    def _while_wanted(self, order: _Order, runs: Iterator[range]) -> Iterator[range]:
        for run in runs:
            if self._closed or order.is_given_up:
                return
            yield run
