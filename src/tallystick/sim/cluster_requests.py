"""The requests of version 3 in a simulated cluster, and what their responses must be.

A bookie answers each once, under its id and with what it is about. It answers a long poll when it knows that more is
confirmed, when its ledger was fenced, or after the time that it was asked to wait for; neither before nor later. What
it took of a ledger that was deleted says nothing of the next one with that id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tallystick.bookkeeper.wire.codes import Code
from tallystick.bookkeeper.wire.v3 import AddRequest, ReadRequest, Request, UnknownRequest, WriteLacRequest
from tallystick.bookkeeper.wire.v3_responses import AddResponse, ReadResponse, Response, WriteLacResponse
from tallystick.bookkeeper.wire.values import NO_ENTRY, BookieId, EntryId, LedgerId
from tallystick.sim.cluster_book import LedgerHistory
from tallystick.sim.cluster_judge import ClusterJudge
from tallystick.sim.virtual.transport import SimTransport

EVERY_S = 0.25
SLACK_S = 0.5  # of an answer, where no fault delays it
_TICK_S = 0.002  # so close to its time a long poll is answered


class _Asked(NamedTuple):
    request: Request
    at: float
    book: LedgerHistory | None = None  # that has the id now, if this tells its LAC


class _Lac(NamedTuple):
    """A LAC that a bookie took, and of which ledger."""

    lac: EntryId
    at: float
    book: LedgerHistory | None


class RequestWatch:
    """Pairs them, by the client's end of their connection. ``calm_since``: no faults have been there since then."""

    def __init__(self, judge: ClusterJudge, now: Callable[[], float]) -> None:
        self._judge, self._now = judge, now
        self._asked: dict[tuple[SimTransport, int], _Asked] = {}
        self._lacs: dict[tuple[BookieId, LedgerId], _Lac] = {}
        self.calm_since: float | None = None

    def requested(self, end: SimTransport, request: Request) -> None:
        """A client has written a request."""
        book = self._judge.books.get(request.ledger) if isinstance(request, WriteLacRequest) else None
        self._asked[end, request.header.request_id] = _Asked(request, self._now(), book)

    def responded(self, end: SimTransport, operation: int, response: Response) -> None:
        """A bookie has written a response."""
        asked, bookie = self._asked.pop((end.peer, response.request_id), None), _bookie(end)
        if asked is None or not _fits(asked.request, operation, response):
            self._judge.fail("wire", f"{bookie} answers {response} to {asked and asked.request}")
        elif isinstance(response, ReadResponse):
            assert isinstance(asked.request, ReadRequest)
            if asked.request.fence and asked.request.entry == NO_ENTRY:
                self._judge.fence_read(response.ledger, bookie)
            elif asked.request.is_long_poll and asked.request.previous_lac is not None:
                self._polled(bookie, asked, asked.request.previous_lac, response)
        elif isinstance(response, WriteLacResponse) and response.code == Code.OK:
            assert isinstance(asked.request, WriteLacRequest)
            self._lacs[bookie, response.ledger] = _Lac(asked.request.lac, self._now(), asked.book)
            self._judge.keeps_lac(response.ledger, bookie, asked.request.lac)

    def _polled(self, bookie: BookieId, asked: _Asked, past: EntryId, response: ReadResponse) -> None:
        ends_at = _ends_at(asked)
        if self._now() >= ends_at - _TICK_S or response.code != Code.OK:
            return
        lac = NO_ENTRY if response.max_lac is None else response.max_lac
        if lac <= past and not self._judge.is_fenced(bookie, response.ledger):
            self._judge.fail("poll", f"{bookie} answers too early that ledger {response.ledger} is still at {past}")

    async def watch(self) -> None:
        """Look for polls without an answer, for ever, from now on, when the faults have ended."""
        self.calm_since = self._now()
        while True:
            await asyncio.sleep(EVERY_S)
            for bookie, asked, past in self._waiting(self.calm_since):
                self._check_waiting(bookie, asked, past)

    def _waiting(self, since: float) -> Iterator[tuple[BookieId, _Asked, EntryId]]:
        for (end, _), asked in self._asked.items():
            request = asked.request
            if asked.at < since or end.is_over or end.peer.is_over or not isinstance(request, ReadRequest):
                continue
            if request.previous_lac is not None and not self._judge.books[request.ledger].damaged:
                yield _bookie(end.peer), asked, request.previous_lac

    def _check_waiting(self, bookie: BookieId, asked: _Asked, past: EntryId) -> None:
        assert isinstance(asked.request, ReadRequest)
        ledger, now = asked.request.ledger, self._now()
        known = self._lacs.get((bookie, ledger))
        if now > _ends_at(asked) + SLACK_S:
            self._judge.fail("poll", f"{bookie} does not say that ledger {ledger} stays at {past}")
        if known is None or known.book is not self._judge.books[ledger]:
            return
        if known.lac > past and now > max(known.at, asked.at) + SLACK_S:
            text = f"{bookie} knows that {known.lac} of ledger {ledger} is confirmed, and does not say so"
            self._judge.fail("poll", text)


def _bookie(end: SimTransport) -> BookieId:
    """Returns whose end this is: a process has the name of its host, and which one of it that is."""
    return end.process.name.partition(".")[0]


def _ends_at(asked: _Asked) -> float:
    """Returns when the time of a long poll is over, at the soonest."""
    assert isinstance(asked.request, ReadRequest)
    return asked.at + (asked.request.timeout_ms or 0) / 1000


def _fits(request: Request, operation: int, response: Response) -> bool:
    """Returns whether a response is of this request's kind, and about the same."""
    if isinstance(request, UnknownRequest) or operation != request.OPERATION:
        return False
    if isinstance(response, AddResponse) and isinstance(request, AddRequest):
        return (response.ledger, response.entry) == (request.ledger, request.entry)
    if isinstance(response, ReadResponse) and isinstance(request, ReadRequest):
        return response.ledger == request.ledger and (request.is_long_poll or response.entry == request.entry)
    return True
