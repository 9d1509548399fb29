"""Lists of all entries of a ledger, made on a thread, one after another: the loop goes on beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tallystick.bookkeeper.bookie.stored_ids import StoredIds
from tallystick.bookkeeper.wire.codes import Code
from tallystick.runtime.worker import Worker

MOST_WAITING = 64  # a list may take seconds: more are refused


class EntryLists:
    """Make lists, encoded by ``encode``, which returns None for one that is too long for a response."""

    def __init__(
        self, worker: Worker, encode: Callable[[Iterator[range]], bytes | None], failed: Callable[[Exception], None]
    ) -> None:
        """``failed`` hears of an error that leaves a list without a response."""
        self._worker, self._encode, self._failed = worker, encode, failed
        self._waiting = 0
        self._closed = False

    def list(self, ids: StoredIds, done: Callable[[Code, bytes], None]) -> None:
        """Call ``done`` with a code and the list; at once if too many wait already."""
        if self._waiting >= MOST_WAITING:
            done(Code.TOO_MANY_REQUESTS, b"")
            return
        self._waiting += 1

        def listed(data: bytes | None, error: Exception | None) -> None:
            self._waiting -= 1
            if error is not None:
                self._failed(error)
            elif not self._closed:
                done(Code.OK, data) if data is not None else done(Code.IO_ERROR, b"")

        self._worker.submit(lambda: self._encode(self._until_closed(ids.runs())), listed)

    def close(self) -> None:
        """End the list that is being made, and make no other."""
        self._closed = True

    def _until_closed(self, runs: Iterator[range]) -> Iterator[range]:
        for run in runs:
            if self._closed:
                return
            yield run
