"""Which bookies are asked for batches of entries: an old one closes the connection on such a request.

A connection may end for any reason, so one that did proves nothing. A bookie is taken for an old one when it closed
several connections one after another on a batch read, each time gave a single entry after it, and never a batch; after
a while it is tried again, since it may have been replaced. The original goes over to single reads at the first loss.
"""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.bookkeeper.wire.values import BookieId

CLOSED_CONNECTIONS = 3
RETRY_S = 1800.0


@dataclass(slots=True)
class _Evidence:
    closed_connections: int = 0
    connection: int = 0  # the newest that was counted: all batch reads of one are lost with it
    single_until: float = 0.0


class BatchReads:
    """The evidence of a client about its bookies, whose connections are numbered from 1. ``exist``: its protocol has
    batch reads at all."""

    def __init__(self, *, exist: bool = True) -> None:
        self._exist = exist
        self._evidence: dict[BookieId, _Evidence] = {}

    def allowed(self, bookie: BookieId, now: float) -> bool:
        evidence = self._evidence.get(bookie)
        return self._exist and (evidence is None or evidence.single_until <= now)

    def answered(self, bookie: BookieId) -> None:
        """A bookie responded to a batch read, with whatever code."""
        self._evidence.pop(bookie, None)

    def closed(self, bookie: BookieId, connection: int, now: float) -> None:
        """A bookie closed this connection on a batch read, and then responded to a single one."""
        evidence = self._evidence.setdefault(bookie, _Evidence())
        if connection <= evidence.connection:
            return
        evidence.connection = connection
        evidence.closed_connections += 1
        if evidence.closed_connections >= CLOSED_CONNECTIONS:  # also when it was tried again and nothing has changed
            evidence.single_until = now + RETRY_S
