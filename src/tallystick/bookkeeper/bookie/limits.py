"""When a bookie takes no writes: without space, or drained by hand (``LedgerDirsMonitor``, ``BookieStateManager``)."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.runtime.disk import Usage

CHECK_EVERY_S = 10.0  # diskCheckInterval

_SPARE_SHARE = 0.01  # of a disk
_SPARE_BYTES = 1024 * 1024 * 1024  # and no more than the original's default (minUsableSizeForHighPriorityWrites)


class DiskGuard:
    """Decide whether the bookie is read-only, by measurements, by writes that found the disk full, and by hand."""

    def __init__(self, threshold: float, spare_bytes: int | None = None, *, warn: float = 1.0) -> None:
        """Take a disk of which more than ``threshold`` is used for too full, and warn of one with more than ``warn``.
        Recovery may write while ``spare_bytes`` are free; None means a hundredth of the disk, at most 1 GiB."""
        self._threshold, self._spare_bytes, self._warn = threshold, spare_bytes, min(warn, threshold)
        self._over = False  # by the last measurement
        self._blocked: list[str] = []  # what found no space and is tried again
        self._spare = True
        self.drained = False  # by hand
        self.usages: tuple[Usage, ...] = ()  # by the last measurement

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

    def measured(self, usages: Sequence[Usage]) -> bool:
        """Take a measurement of the file systems. Returns whether ``read_only`` changed."""
        before, self.usages = self.read_only, tuple(usages)
        self._over = any(usage.total - usage.free > usage.total * self._threshold for usage in usages)
        self._spare = all(usage.free >= self._spare_of(usage) for usage in usages)
        return self.read_only != before

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
