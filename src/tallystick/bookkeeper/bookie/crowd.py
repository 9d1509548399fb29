"""What one connection of a bookie knows of all of them: the memory and the time that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tallystick.bookkeeper.bookie.turns import Kind
from tallystick.errors import RemoteProtocolError

if TYPE_CHECKING:  # each knows the other
    from tallystick.bookkeeper.bookie.session import Session


class Crowd(Protocol):
    """All connections of a bookie, as one of them sees it."""

    @property
    def buffer(self) -> memoryview:
        """Every read lands here; whole frames are copied out once."""
        ...

    def received(self, nbytes: int, session: Session) -> memoryview:
        """The session read so many bytes into the buffer. Returns them."""
        ...

    @property
    def short(self) -> bool:
        """Whether answers to reads should be short: many responses wait to be taken."""
        ...

    def opened(self, session: Session) -> None: ...

    def closed(self, session: Session) -> None: ...

    def refused(self, peer: str, error: RemoteProtocolError) -> None:
        """Hear that a peer is closed for what it sent."""
        ...

    def failed(self, peer: str, error: Exception) -> None:
        """Hear that a peer is closed for a fault of ours."""
        ...

    def unsent(self, session: Session, size: int, has_taken: bool) -> None:
        """So many bytes wait for the peer to take them; ``has_taken``: it took some since the last call."""
        ...

    def unfinished(self, session: Session, size: int, progress: bool) -> None:
        """So many bytes of requests have no response yet; ``progress``: one was served since the last call."""
        ...

    def remembers(self, session: Session, size: int) -> None:
        """So many bytes are held of the connection itself while it lasts."""
        ...

    def wait(self, session: Session, kind: Kind) -> None:
        """Call its ``go_on`` in one of the next turns."""
        ...

    def forget(self, session: Session) -> None:
        """The connection has ended: it holds nothing and wants no turn."""
        ...
