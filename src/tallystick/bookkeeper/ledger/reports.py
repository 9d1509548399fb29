"""What a connection has to tell those who asked, some of them in each turn of the loop.

One socket read may have the responses to thousands of ledgers, and one end of a connection the failures of as many.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tallystick.bookkeeper.ledger.owners import Owner
from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.values import EntryId
from tallystick.codec.frames import Buffer
from tallystick.errors import TallyError

OWNERS_A_TURN = 128  # that hear of a response or a failure before the loop goes on

UnansweredEntries = tuple[Owner, list[EntryId]]


Broken = Callable[[Exception], None]  # is called with what an owner raises when it hears of responses in a later turn
NotTaken = Callable[[Exception, int], None]  # with what one raises that hears of a failure, and of how many entries


class Reports:
    """See the module. It keeps nothing of the connection: one that has ended is garbage at once, without a cycle."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._responses: deque[tuple[Owner, Code, list[EntryId], Sequence[Buffer]]] = deque()
        self._failures: deque[tuple[Owner, list[EntryId], TallyError]] = deque()
        self.is_telling = False  # there are answers that wait for a later turn

    # Answers

    def answered(self, owner: Owner, code: Code, entries: list[EntryId], data: Sequence[Buffer] = ()) -> None:
        """To be told; with what the owner is told anyway, where there is no data."""
        if not data and self._responses and self._responses[-1][0] is owner and self._responses[-1][1] == code:
            self._responses[-1][2].extend(entries)
        else:
            self._responses.append((owner, code, entries, data))

    def tell(self, broken: Broken) -> None:
        """All of a socket read has been reported: some owners hear now, the others after them in later turns. Raises
        what an owner raises, who has not heard then."""
        if not self.is_telling:
            self._tell_some(broken)

    def _tell_some(self, broken: Broken) -> None:
        self.is_telling = False
        self._tell(OWNERS_A_TURN)
        if self._responses:
            self.is_telling = True
            self._loop.call_soon(self._tell_rest, broken)

    def _tell_rest(self, broken: Broken) -> None:
        try:
            self._tell_some(broken)
        except Exception as error:
            broken(error)

    def _tell(self, count: int) -> None:
        while self._responses and count:
            count -= 1
            owner, code, entries, data = response = self._responses.popleft()
            try:
                if code == Code.OK:
                    owner.received(entries, data)
                else:
                    owner.refused(entries, code)
            except Exception:
                self._responses.appendleft(response)  # nobody else knows any more who asked for these
                raise

    def end(self) -> list[UnansweredEntries]:
        """No response follows. Those that wait for their turn came before the end and are told; the rest is unknown."""
        if self.is_telling:
            with contextlib.suppress(Exception):
                self._tell(len(self._responses))
        untold = [(owner, entries) for owner, _, entries, _ in self._responses]
        self._responses.clear()
        return untold

    # Failures

    def lost(
        self, unanswered_entries: Iterable[UnansweredEntries], error: Callable[[], TallyError], not_taken: NotTaken
    ) -> None:
        """Nobody answers these: some owners hear now, the others after them in later turns."""
        is_under_way = bool(self._failures)
        self._failures += [(owner, entries, error()) for owner, entries in unanswered_entries]
        if not is_under_way:
            self._tell_failures(not_taken)

    def _tell_failures(self, not_taken: NotTaken) -> None:
        for _ in range(min(len(self._failures), OWNERS_A_TURN)):
            owner, entries, error = self._failures.popleft()
            try:
                owner.lost(entries, error)
            except Exception as raised:  # the others must hear of theirs all the same
                not_taken(raised, len(entries))
        if self._failures:
            self._loop.call_soon(self._tell_failures, not_taken)

    def tell_all_failures(self, not_taken: NotTaken) -> None:
        """Everybody hears now what failed: the loop may end."""
        while self._failures:
            self._tell_failures(not_taken)
