"""What a connection has sent and nobody has served yet: bytes in pieces, and requests that come back from a look."""

from __future__ import annotations

from collections import deque

from tallystick.bookkeeper.bookie.wires import LENGTH_BYTES, Wire

_SMALL_BYTES = 4096


class UnservedRequests:
    """Bytes come in order by ``add``. Whole requests that were taken before, and waited for a look, come back by
    ``put_back``: they are the next ones, in the order in which they came back."""

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []  # less than a frame, or what must wait; the first is bytes
        self._pieces_size = self._returned_size = 0
        self._returned: deque[tuple[Wire, bytes]] = deque()
        self._wire: Wire | None = None  # None: too little has come to know it
        self.need = LENGTH_BYTES  # so many bytes make it worthwhile to look

    @property
    def size(self) -> int:
        return self._pieces_size + self._returned_size

    @property
    def is_due(self) -> bool:
        """Whether there is enough to serve something."""
        return bool(self._returned) or self._pieces_size >= self.need

    @property
    def has_returned(self) -> bool:
        """Whether requests that came back are the next ones."""
        return bool(self._returned)

    @property
    def wire(self) -> Wire | None:
        """The wire of what is next; None if that is not known yet."""
        return self._returned[0][0] if self._returned else self._wire

    def turn_to(self, wire: Wire) -> None:
        """All that came by ``add`` and is not served is in this wire."""
        self._wire = wire

    @property
    def head(self) -> bytes:
        """The beginning of what is next."""
        return self._returned[0][1] if self._returned else bytes(self._pieces[0])

    def add(self, piece: memoryview) -> None:
        """Keep a copy. Small pieces go into one: as an object each they would take many times what is counted."""
        self._pieces_size += len(piece)
        if not self._pieces or len(piece) >= _SMALL_BYTES:
            self._pieces.append(bytes(piece))
        elif isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def put_back(self, wire: Wire, frames: bytes) -> None:
        self._returned.append((wire, frames))
        self._returned_size += len(frames)

    def next(self) -> bytes:
        """Return what is to be served next; ``served`` tells how much of it was."""
        if self._returned:
            return self._returned[0][1]
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
        return bytes(self._pieces[0])

    def served(self, position: int, need: int) -> None:
        """What ``next`` returned was served up to ``position``; ``need`` bytes of the rest make another call
        worthwhile, 0 if any do."""
        data = self.next()
        if self._returned:
            wire, _ = self._returned.popleft()
            if position < len(data):
                self._returned.appendleft((wire, data[position:]))
            self._returned_size -= position
            return
        self._pieces = [data[position:]] if position < len(data) else []
        self._pieces_size -= position
        self.need = need or 1

    def clear(self) -> None:
        """Forget all; nothing more is worthwhile."""
        self._pieces, self._pieces_size, self._returned_size = [], 0, 0
        self._returned.clear()
        self.need = 1
