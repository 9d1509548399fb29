"""The decompressed payloads that the readers of one client are in the middle of: so many bytes are kept for all.

A reader that is left alone in the middle of a batch would keep as much as an entry may have, and a thousand readers a
thousand times that. None waits for the bytes of another, whose caller may wait for this one's messages: the payload
that was used longest ago is let go, and made again when its reader goes on. The newest is kept however long it is.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict

from tallystick.bookkeeper.wire.pulsar_messages import Buffer

MOST_KEPT_BYTES = 256 << 20


class PlainPayload:
    """That of one entry. ``payload`` is None when it was let go."""

    __slots__ = ("__weakref__", "payload")

    def __init__(self) -> None:
        self.payload: Buffer | None = None


class PlainPayloads:
    """See the module. What nobody refers to any more does not count."""

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._sizes: OrderedDict[weakref.ref[PlainPayload], int] = OrderedDict()  # of the one used longest ago first
        self.bytes = 0

    def keep(self, plain: PlainPayload, payload: Buffer) -> None:
        """It was used now, and will be again."""
        self.drop(plain)
        plain.payload = payload
        self._sizes[weakref.ref(plain, self._forget)] = len(payload)
        self.bytes += len(payload)
        while self.bytes > self._most_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))()
            assert oldest is not None, "else it would have been forgotten"
            self.drop(oldest)

    def drop(self, plain: PlainPayload) -> None:
        """It is let go, if it was kept."""
        plain.payload = None
        self._forget(weakref.ref(plain))

    def _forget(self, reference: weakref.ref[PlainPayload]) -> None:
        self.bytes -= self._sizes.pop(reference, 0)
