"""What a connection reports to the owners of requests, some of them in each turn of the loop.

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


Broken = Callable[[Exception], None]  # hears what an owner raises when it hears of responses in a later turn
OwnerFailed = Callable[[Exception, int], None]  # hears what an owner raises at a failure, and of how many entries


class Reports:
    """Queue the reports of one connection. It holds nothing of that: a connection that has ended is garbage at once,
    without a cycle."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._responses: deque[tuple[Owner, Code, list[EntryId], Sequence[Buffer]]] = deque()
        self._failures: deque[tuple[Owner, list[EntryId], TallyError]] = deque()
        self.is_reporting = False  # responses wait for a later turn

    # Responses

    def answered(self, owner: Owner, code: Code, entries: list[EntryId], data: Sequence[Buffer] = ()) -> None:
        """Queue a response; one without data joins the last of its owner, if that has the same code."""
        if not data and self._responses and self._responses[-1][0] is owner and self._responses[-1][1] == code:
            self._responses[-1][2].extend(entries)
        else:
            self._responses.append((owner, code, entries, data))

    def tell(self, broken: Broken) -> None:
        """Report the queue, as a socket read has ended: some owners hear now, the others after them in later turns.

        Raises what an owner raises; that owner counts as one that has not heard.
        """
        if not self.is_reporting:
            self._tell_some(broken)

    def _tell_some(self, broken: Broken) -> None:
        self.is_reporting = False
        self._tell(OWNERS_A_TURN)
        if self._responses:
            self.is_reporting = True
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
        """Report what is queued, as no response follows. Returns what could not be reported: it is unknown."""
        if self.is_reporting:
            with contextlib.suppress(Exception):
                self._tell(len(self._responses))
        unreported = [(owner, entries) for owner, _, entries, _ in self._responses]
        self._responses.clear()
        return unreported

    # Failures

    def fail(
        self,
        unanswered_entries: Iterable[UnansweredEntries],
        error: Callable[[], TallyError],
        owner_failed: OwnerFailed,
    ) -> None:
        """Report that these get no response: some owners hear now, the others after them in later turns."""
        is_under_way = bool(self._failures)
        self._failures += [(owner, entries, error()) for owner, entries in unanswered_entries]
        if not is_under_way:
            self._tell_failures(owner_failed)

    def _tell_failures(self, owner_failed: OwnerFailed) -> None:
        for _ in range(min(len(self._failures), OWNERS_A_TURN)):
            owner, entries, error = self._failures.popleft()
            try:
                owner.failed(entries, error)
            except Exception as raised:  # the others must hear of theirs all the same
                owner_failed(raised, len(entries))
        if self._failures:
            self._loop.call_soon(self._tell_failures, owner_failed)

    def tell_all_failures(self, owner_failed: OwnerFailed) -> None:
        """Report all failures at once: the loop may end."""
        while self._failures:
            self._tell_failures(owner_failed)
