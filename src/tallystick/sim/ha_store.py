"""The production store of a simulated node, and who sees all that writes to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival, PutRequest, PutResult
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.runtime.disk import Buffer
from tallystick.sim.invariants import Violation

_REPUT_BYTES = 4096


class LogWatcher(Protocol):
    """Hears of each change of a log."""

    sync_flush: bool

    def took(self, before: int, put_requests: Sequence[PutRequest], puts: Sequence[PutResult]) -> None:
        """A master's store ended at ``before``, and this became of a tick's put requests."""
        ...

    def see(self, start: int) -> None:
        """The log has other bytes from ``start`` on."""
        ...

    def copied(self, offset: int, size: int) -> None:
        """A slave's store appended what its master sent."""
        ...

    def flushing(self) -> AbstractContextManager[None]:
        """Surrounds a flush."""
        ...

    def maintaining(self) -> AbstractContextManager[None]:
        """Surrounds the upkeep."""
        ...

    def closing(self) -> None:
        """The store is about to close."""
        ...


class SeenStore(MessageStore):
    """A store that reports what it does to its ``log``, which is set after it was opened."""

    log: LogWatcher

    def put(self, put_requests: Sequence[PutRequest], sink: SinkIdentity | None = None) -> list[PutResult]:
        before, puts = self.end, super().put(put_requests, sink)
        self.log.took(before, put_requests, puts)
        return puts

    def append_raw(self, offset: int, data: Buffer) -> int:
        start = offset if self.end == self.first else self.end
        try:
            end = super().append_raw(offset, data)
        finally:  # a full disk may have taken a part
            self.log.see(start)
        self.log.copied(offset, len(data))
        return end

    def reput(self, limit_bytes: int = _REPUT_BYTES) -> list[Arrival]:
        arrivals = super().reput(limit_bytes)
        if self.log.sync_flush and not self.slave and self.reput_offset > self.flushed:
            raise Violation(f"flush: readable up to {self.reput_offset}, synced up to {self.flushed}")
        return arrivals

    def flush(self) -> int:
        with self.log.flushing():
            return super().flush()

    def maintain(self, now_ms: int) -> None:
        with self.log.maintaining():
            super().maintain(now_ms)

    def close(self) -> None:
        self.log.closing()
        super().close()
