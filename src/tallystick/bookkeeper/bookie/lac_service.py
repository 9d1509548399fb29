"""How far ledgers are confirmed: writers say so beside their entries, readers ask, once or until there is more.

What a bookie knows of it is the explicit LAC that the writer sent, or the LAC in the header of the last entry here
(``Storage.known_lac``): never more than is confirmed, and often less. As every request that asks how far a ledger goes,
these wait for the look that proves which ledger of that id is stored here (``look.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.bookkeeper.bookie import explicit_lacs
from tallystick.bookkeeper.bookie.limits import DiskGuard
from tallystick.bookkeeper.bookie.long_polls import LongPolls, Requester
from tallystick.bookkeeper.bookie.look import Verdict
from tallystick.bookkeeper.bookie.metrics import Counts
from tallystick.bookkeeper.bookie.service import AfterLook, Later, ServiceResponse
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.wire.codes import NO_CODES, Code
from tallystick.bookkeeper.wire.values import NO_ENTRY, EntryId, LedgerId
from tallystick.errors import StorageError


@dataclass(slots=True)
class ExplicitLacRequest:
    """Keep an explicit LAC. ``body`` has ledger and LAC again, with a digest that readers check."""

    ledger: LedgerId
    lac: EntryId
    master_key: bytes = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(slots=True)
class LastConfirmed:
    """The response to who asks how far a ledger goes: both bodies are as their writer sent them."""

    code: Code
    lac_body: bytes | None = None
    last_entry: bytes | None = None


@dataclass(slots=True)
class LongPollRequest:
    """Get the entry after ``past`` once the ledger is known to be confirmed beyond ``past``, or no entry after the
    time-out; without one at once."""

    ledger: LedgerId
    past: EntryId
    timeout_ms: int = 0


@dataclass(slots=True)
class LongPollResponse:
    """``entry`` is NO_ENTRY and ``body`` empty where the one after ``past`` is not confirmed, or not here."""

    code: Code
    lac: EntryId | None = None  # that is known; None with another code than OK
    entry: EntryId = NO_ENTRY
    body: bytes = b""


class LacService:
    """Do these requests. ``looks()`` says whether they may wait for a look at their ledger's metadata."""

    def __init__(
        self, storage: Storage, guard: DiskGuard, counts: Counts, polls: LongPolls, *, looks: Callable[[], bool]
    ) -> None:
        self._storage, self._guard, self._counts, self._polls, self._looks = storage, guard, counts, polls, looks
        self._identities, self._limbo = storage.identities, storage.limbo

    def write_lac(self, request: ExplicitLacRequest, verdict: Verdict | None = None) -> ServiceResponse | AfterLook:
        """Keep an explicit LAC, also of a fenced ledger; durable before the response."""
        if verdict is None and self._must_wait(request.ledger, request.master_key):
            return AfterLook(request.ledger)
        code = self._write(request, verdict)
        self._counts.lac_writes += 1
        self._counts.lac_writes_failed += code != Code.OK
        return ServiceResponse(code, commit=self._storage.newest_commit) if code == Code.OK else ServiceResponse(code)

    def _write(self, request: ExplicitLacRequest, verdict: Verdict | None) -> Code:
        ledger = request.ledger
        if ledger < 0 or request.lac < NO_ENTRY or not explicit_lacs.fits(request.body, ledger, request.lac):
            return Code.BAD_REQUEST
        if self._is_in_doubt(ledger, verdict):
            return Code.IO_ERROR
        if not self._guard.accepts(high_priority=False):
            return Code.READ_ONLY
        code = self._storage.write_lac(ledger, request.master_key, request.body)
        if code == Code.OK:
            self._polls.moved(ledger)
        return self._limbo.code(ledger, code)

    def last_confirmed(self, ledger: LedgerId, verdict: Verdict | None = None) -> LastConfirmed | AfterLook:
        """Return the explicit LAC and the last entry. The code is NO_ENTRY where there is neither, be the ledger here
        or not, and IO_ERROR where only the last entry lacks, as the original says it."""
        if verdict is None and self._must_wait(ledger):
            return AfterLook(ledger)
        response = self._last_confirmed(ledger, verdict)
        self._counts.lac_reads += 1
        self._counts.lac_reads_failed += response.code != Code.OK
        return response

    def _last_confirmed(self, ledger: LedgerId, verdict: Verdict | None) -> LastConfirmed:
        if ledger < 0:
            return LastConfirmed(Code.BAD_REQUEST)
        if self._is_in_doubt(ledger, verdict):
            return LastConfirmed(Code.IO_ERROR)
        if ledger in self._limbo:  # the ledger may be confirmed further than what is here says
            return LastConfirmed(Code.UNKNOWN_LEDGER_STATE)
        lac_body = self._storage.explicit_lac(ledger)
        code, last_entry = self._entry(ledger, NO_ENTRY)
        if code == Code.OK:
            return LastConfirmed(code, lac_body, last_entry)
        return LastConfirmed(Code.NO_ENTRY if lac_body is None and code in NO_CODES else Code.IO_ERROR, lac_body)

    def poll(
        self, request: LongPollRequest, verdict: Verdict | None = None
    ) -> LongPollResponse | AfterLook | Later[LongPollResponse]:
        """Answer a long poll, later if the ledger is not known to be confirmed so far.

        One that asks for the first entry of a ledger that is not here waits, too: a ledger is made without its bookies,
        and may be idle for hours before it has one.
        """
        if verdict is None and self._must_wait(request.ledger):
            return AfterLook(request.ledger)
        response = self._polled(request, verdict)
        if request.ledger in self._limbo:
            return self._counted(response)
        is_known = response.lac is not None and response.lac <= request.past
        is_empty = response.code == Code.NO_LEDGER and request.past == NO_ENTRY
        if not (is_known or is_empty) or request.timeout_ms <= 0:
            return self._counted(response)

        def begin(owner: Requester, done: Callable[[LongPollResponse], None]) -> None:
            def wake() -> None:
                done(self._counted(self._polled(request, Verdict.UNKNOWN)))

            if self._storage.known_lac(request.ledger) > request.past:  # by what came with the poll, right behind it
                wake()
            elif not self._polls.hold(owner, request.ledger, request.past, request.timeout_ms / 1000, wake):
                done(self._counted(response))

        return Later(begin)

    def _polled(self, request: LongPollRequest, verdict: Verdict | None) -> LongPollResponse:
        ledger, next_entry = request.ledger, request.past + 1
        if ledger < 0 or request.past < NO_ENTRY:
            return LongPollResponse(Code.BAD_REQUEST)
        if self._is_in_doubt(ledger, verdict):
            return LongPollResponse(Code.IO_ERROR)
        if ledger in self._limbo:
            return self._polled_in_limbo(ledger, next_entry)
        lac = self._storage.known_lac(ledger)
        if lac < next_entry:
            code = self._storage.last_code(ledger)
            return LongPollResponse(code, lac) if code == Code.OK else LongPollResponse(code)
        code, body = self._entry(ledger, next_entry)
        if code == Code.OK:
            return LongPollResponse(code, lac, next_entry, body)
        return LongPollResponse(Code.OK, lac) if code == Code.NO_ENTRY else LongPollResponse(code)

    def _polled_in_limbo(self, ledger: LedgerId, next_entry: EntryId) -> LongPollResponse:
        """Give the entry if it is here, and known to be confirmed; nothing else is known."""
        lac, code, body = self._storage.known_lac(ledger), Code.UNKNOWN_LEDGER_STATE, b""
        if lac >= next_entry:
            code, body = self._entry(ledger, next_entry)
        if code == Code.OK:
            return LongPollResponse(code, lac, next_entry, body)
        return LongPollResponse(self._limbo.code(ledger, code))

    def _counted(self, response: LongPollResponse) -> LongPollResponse:
        self._counts.long_polls += 1
        self._counts.long_polls_failed += response.code != Code.OK
        self._counts.read_bytes += len(response.body)
        return response

    def told_with(self, ledger: LedgerId) -> EntryId | None:
        """Return the LAC that is told with entries of a ledger, None if it may be that of another one of its id."""
        return None if self._identities.needs_comparison(ledger) else self._storage.known_lac(ledger)

    def _entry(self, ledger: LedgerId, entry: EntryId) -> tuple[Code, bytes]:
        try:
            return self._storage.read(ledger, entry)
        except StorageError:
            return Code.IO_ERROR, b""  # never a "no": the entry may be there (Q15)

    def _must_wait(self, ledger: LedgerId, key: bytes | None = None) -> bool:
        return self._identities.needs_comparison(ledger, key) and self._looks()

    def _is_in_doubt(self, ledger: LedgerId, verdict: Verdict | None) -> bool:
        is_unread = verdict in (None, Verdict.UNKNOWN)
        return verdict is Verdict.AMISS or (is_unread and self._identities.is_in_doubt(ledger))
