"""When a bookie takes no writes: without space, or drained by hand (``LedgerDirsMonitor``, ``BookieStateManager``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.runtime.disk import Usage

CHECK_EVERY_S = 10.0  # diskCheckInterval

_SPARE_SHARE = 0.01  # of a disk
_SPARE_BYTES = 1024 * 1024 * 1024  # and no more than the original's default (minUsableSizeForHighPriorityWrites)


@dataclass(frozen=True)
class DiskPlaces:
    """Which folders are measured: all journals must have room, and one ledger folder, by the folder of its logs."""

    journals: tuple[str, ...]
    ledgers: Mapping[str, str]


class DiskGuard:
    """Decide whether the bookie is read-only, by measurements, by writes that found the disk full, and by hand."""

    def __init__(
        self, threshold: float, spare_bytes: int | None = None, *, warn: float = 1.0, any_full: bool = False
    ) -> None:
        """Take a disk of which more than ``threshold`` is used for too full, and warn of one with more than ``warn``.
        Recovery may write while ``spare_bytes`` are free; None means a hundredth of the disk, at most 1 GiB.
        ``any_full``: one full disk of several makes the bookie read-only."""
        self._any_full = any_full
        self._threshold, self._spare_bytes, self._warn = threshold, spare_bytes, min(warn, threshold)
        self._over = False  # by the last measurement
        self._blocked: list[str] = []  # what found no space and is tried again
        self._spare = True
        self.drained = False  # by hand
        self.room = Usage(0, 0)  # of the ledger folders, by the last measurement

    @property
    def read_only(self) -> bool:
        return self._over or bool(self._blocked) or self.drained

    @property
    def reason(self) -> str:
        """Why the bookie is read-only, or was."""
        return "drained by hand" if self.drained and not (self._over or self._blocked) else "disk space"

    def accepts(self, high_priority: bool) -> bool:
        """Return whether an ADD may be stored. Those of recovery may as long as there is space at all."""
        return not self.read_only or (high_priority and self._spare and not self._blocked)

    def measured(self, usages: Sequence[Usage], ledgers: Sequence[Usage] = ()) -> bool:
        """Take a measurement of the file systems that are all needed, and of those of ledger folders, of which one is
        enough. Returns whether ``read_only`` changed."""
        before, self.room = self.read_only, _sum(ledgers or usages[-1:])
        enough = any if self._any_full else all
        self._over = any(map(self.is_over, usages)) or (bool(ledgers) and enough(map(self.is_over, ledgers)))
        self._spare = all(map(self._has_spare, usages)) and (not ledgers or any(map(self._has_spare, ledgers)))
        return self.read_only != before

    def is_over(self, usage: Usage) -> bool:
        """Return whether a file system is so full that it takes nothing new."""
        return usage.total - usage.free > usage.total * self._threshold

    def _has_spare(self, usage: Usage) -> bool:
        return usage.free >= self._spare_of(usage)

    def is_filling(self, usage: Usage) -> bool:
        """Return whether a file system is so full that somebody should make room."""
        return usage.total - usage.free > usage.total * self._warn

    def _spare_of(self, usage: Usage) -> int:
        return min(_SPARE_BYTES, int(usage.total * _SPARE_SHARE)) if self._spare_bytes is None else self._spare_bytes

    def set_drained(self, drained: bool) -> bool:
        """Drain the bookie, or let it take writes again. Returns whether that is news."""
        before, self.drained = self.drained, drained
        return drained != before

    def filled(self, what: str) -> bool:
        """A commit or checkpoint found no space. Returns whether ``read_only`` changed."""
        before = self.read_only
        if what not in self._blocked:
            self._blocked.append(what)
        return not before

    def written(self, what: str) -> bool:
        """A commit or checkpoint succeeded. Returns whether ``read_only`` changed."""
        before = self.read_only
        if what in self._blocked:
            self._blocked.remove(what)
        return self.read_only != before


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(sum(usage.total for usage in usages), sum(usage.free for usage in usages))
