"""A bookie's connection, without the bookie: who hears what it says, and a wire whose calls take time."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, cast

from tallystick.bookkeeper.bookie.session import Session, SessionContext
from tallystick.bookkeeper.bookie.turns import Kind, TurnsCore
from tallystick.bookkeeper.bookie.wires import ServeResult, Wire
from tallystick.bookkeeper.wire import v2


@dataclass
class Told:
    """A crowd and a transport in one: what a session says of the bytes that its peer has not taken."""

    waiting: int = 0
    told: list[tuple[int, bool]] = field(default_factory=list)

    def unsent(self, session: Session, size: int, taken: bool) -> None:
        self.told.append((size, taken))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Turned(Told):
    """A crowd, and a wire of which each read of the socket takes ``seconds``, for a session that is alone."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.time_s = seconds, 0.0
        self.buffer = memoryview(bytearray(1024))
        self.kept: list[int] = []  # bytes of requests, each time that they are told
        self.waits: list[Kind] = []
        self.served: list[bool] = []  # whether reads were
        self.congested = False
        self.turns: TurnsCore[Session] = TurnsCore(1.0)
        around: Any = self
        self.session = Session(SessionContext(around, around, self.turns, around, around))
        self.session._loop = around
        self.session.connection_made(around)

    def time(self) -> float:
        return self.time_s

    def received(self, nbytes: int, session: Session) -> memoryview:
        return self.buffer[:nbytes]

    def unfinished(self, session: Session, size: int, progress: bool) -> None:
        self.kept.append(size)

    def wait(self, session: Session, kind: Kind) -> None:
        self.waits.append(kind)

    def spoken(self, beginning: bytes) -> Wire:
        return cast(Wire, self)

    def is_read(self, data: bytes) -> bool:
        return data[5] == v2.Op.READ

    def serve(
        self, data: bytes, *, reads: bool, short: bool, has_time: object, behind: AbstractSet[int]
    ) -> ServeResult:
        self.served.append(reads)
        self.time_s += self.seconds
        return ServeResult(len(data))

    def came(self, frame: bytes) -> None:
        self.buffer[: len(frame)] = frame
        self.session.buffer_updated(len(frame))
