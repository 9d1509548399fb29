"""When a marked ledger that could not be repaired is tried again, and for how long its metadata has stood still."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tallystick.bookkeeper.metadata.store import Version
from tallystick.bookkeeper.wire.values import LedgerId


@dataclass
class _Deferral:
    version: Version | None  # of the metadata when it was last seen
    since: float  # when that version was seen first
    retry_at: float
    backoff_s: float
    reason: str = ""


class Deferrals:
    """The marked ledgers that wait, for one replicator. Times are seconds of one clock."""

    def __init__(self, retry_s: float, max_retry_s: float) -> None:
        self._retry_s, self._max_retry_s = retry_s, max_retry_s
        self._ledgers: dict[LedgerId, _Deferral] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def is_due(self, ledger: LedgerId, now: float) -> bool:
        """Returns whether a marked ledger is to be tried now."""
        waiting = self._ledgers.get(ledger)
        return waiting is None or waiting.retry_at <= now

    def seen(self, ledger: LedgerId, version: Version, now: float) -> float:
        """Note the version of the metadata. Returns for how long it has been the same one, as far as was seen."""
        waiting = self._ledgers.setdefault(ledger, _Deferral(version, now, now, self._retry_s))
        if waiting.version != version:
            waiting.version, waiting.since = version, now
        return now - waiting.since

    def defer(self, ledger: LedgerId, now: float, wait_s: float | None, reason: str) -> bool:
        """Try a ledger again after ``wait_s``; None: after a growing time. Returns whether the reason is a new one."""
        waiting = self._ledgers.setdefault(ledger, _Deferral(None, now, now, self._retry_s))
        if wait_s is None:
            wait_s, waiting.backoff_s = waiting.backoff_s, min(2 * waiting.backoff_s, self._max_retry_s)
        waiting.retry_at = now + wait_s
        is_new, waiting.reason = reason != waiting.reason, reason
        return is_new

    def postpone(self, ledger: LedgerId, until: float) -> None:
        """Leave a ledger alone until then: another worker has it in hand."""
        waiting = self._ledgers.setdefault(ledger, _Deferral(None, until, until, self._retry_s))
        waiting.retry_at = until

    def keep(self, marked: Collection[LedgerId], after: LedgerId, upto: LedgerId) -> None:
        """Forget the ledgers that are marked no more: of those behind ``after`` up to ``upto`` these are."""
        self._ledgers = {
            ledger: waiting
            for ledger, waiting in self._ledgers.items()
            if ledger in marked or not after < ledger <= upto
        }

    def wake_at(self) -> float | None:
        """Returns when the first one is due, None if none waits."""
        return min((waiting.retry_at for waiting in self._ledgers.values()), default=None)
