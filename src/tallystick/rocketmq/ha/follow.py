"""The slave's side of its link to the master: what it reports, what it appends, when the link ends (H4 to H8, R1, R3).

::

    SETTLING ──all synced──→ ASKING ──the master's hello──→ GREETED ──the first frame──→ FOLLOWING (the logs agree)
                                └──no hello in time──────────────────────────────────→ FOLLOWING (plain)
                                                       a late hello: GREETED after all ←──┘

The first report is the end of the slave's log; a slave that promises synced bytes therefore syncs all of them first. In
the plain form, which an original master speaks, nobody compares the logs: only the offsets must meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.ha.log import LogRange
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import (
    ASK,
    HEAD,
    MAX_BODY_BYTES,
    MAX_HELLO_BYTES,
    REPORT,
    MasterHello,
    SlaveHello,
    Span,
    decode_master_hello,
)

MAX_FRAMES = 12_000  # in one read of 1 MiB: each has a record, or a part of one behind 32 KiB


# These two come with each message, and a struct is made in a tenth of the time of a dataclass.
class SendToMaster(msgspec.Struct, frozen=True):
    """Send these bytes to the master, as they are."""

    data: bytes


class Append(msgspec.Struct, frozen=True):
    """Append these pieces, one after another, at ``offset``; then call ``appended``."""

    offset: int
    parts: tuple[memoryview, ...]


@dataclass(frozen=True)
class Following:
    """The link carries the log from now on. ``proven``: the master compared the logs."""

    proven: bool


@dataclass(frozen=True)
class Reconnect:
    """End the link and connect again after ``retry_s``. ``refused``: the logs do not fit, and an operator must act."""

    reason: str
    retry_s: float
    refused: bool = False
    at_once: bool = False  # what is unsent will not be taken


Action = SendToMaster | Append | Following | Reconnect


class Stage(Enum):
    SETTLING = auto()
    ASKING = auto()
    GREETED = auto()
    FOLLOWING = auto()
    CLOSED = auto()


class FollowCore:
    """The core of one connection. ``tick`` is due at ``wake_at``."""

    def __init__(self, settings: HaSettings, log: LogRange, spans: tuple[Span, ...], now: float) -> None:
        self._settings, self._log, self._spans = settings, log, spans
        self.stage = Stage.SETTLING
        self.proven = False
        self.master: MasterHello | None = None  # its hello
        self.reported_offset = -1
        self._start = self._end = log.end  # where this link began, and where the next byte belongs
        self._head = b""  # of a frame whose header is not all here
        self._missing_bytes = 0  # bytes of the current body that did not come yet
        self._hello: bytes | None = None  # the current body, when it is a hello
        self.last_read = self.last_write = now

    def connected(self, now: float) -> list[Action]:
        """The connection is made."""
        return self._ask(now)

    def received(self, data: memoryview, now: float) -> list[Action]:
        """Bytes came in one read. Returns at most one Append, with the parts of all frames in it."""
        self.last_read = now
        if self._is_closed:
            return []
        start, parts, actions = self._end, list[memoryview](), list[Action]()
        at, frames = 0, 0
        while at < len(data) and not self._is_closed:
            if not self._missing_bytes:
                header_part = data[at : at + HEAD.size - len(self._head)]
                self._head += header_part
                at += len(header_part)
                if len(self._head) == HEAD.size:
                    frames += 1
                    actions += self._begin(now) if frames <= MAX_FRAMES else self._close("very many frames in one read")
                    start = start if parts else self._end
                continue
            piece = data[at : at + self._missing_bytes]
            at += len(piece)
            self._missing_bytes -= len(piece)
            if self._hello is None:
                parts.append(piece)
                self._end += len(piece)
            else:
                self._hello += piece
                actions += [] if self._missing_bytes else self._read_hello(now)
        return [Append(start, tuple(parts)), *actions] if parts else actions

    def appended(self, log: LogRange, now: float) -> list[Action]:
        """An append is done; its bytes are not synced yet."""
        self._log = log
        return self._report_progress(now)

    def flushed(self, log: LogRange, now: float) -> list[Action]:
        """A sync is done: more of the log is durable."""
        self._log = log
        return self._ask(now) if self.stage is Stage.SETTLING else self._report_progress(now)

    def tick(self, now: float) -> list[Action]:
        settings = self._settings
        if self._is_closed:
            return []
        if now >= self._silence_at():
            return self._close("heard nothing from the master for too long", retry_s=0.0, at_once=True)
        if self.stage is Stage.ASKING and now >= self.last_write + settings.handshake_ms / 1000:
            return self._follow(now, proven=False)
        if self.stage is Stage.FOLLOWING and now >= self.last_write + settings.heartbeat_ms / 1000:
            return self._report(now)
        return []

    def wake_at(self) -> float | None:
        """Returns when ``tick`` is due, or None if the link is closed."""
        if self._is_closed:
            return None
        if self.stage is Stage.ASKING:
            return min(self._silence_at(), self.last_write + self._settings.handshake_ms / 1000)
        if self.stage is Stage.FOLLOWING:
            return min(self._silence_at(), self.last_write + self._settings.heartbeat_ms / 1000)
        return self._silence_at()

    def _silence_at(self) -> float:
        return self.last_read + self._settings.housekeeping_ms / 1000

    @property
    def _is_closed(self) -> bool:
        return self.stage is Stage.CLOSED

    def _ask(self, now: float) -> list[Action]:
        if self._settings.sync_flush and self._log.flushed < self._log.end:
            return []
        self.stage = Stage.ASKING
        return self._send(REPORT.pack(ASK), now)

    def _begin(self, now: float) -> list[Action]:
        """The header of a frame is whole: check it."""
        offset, self._missing_bytes = HEAD.unpack(self._head)
        self._head = b""
        if not 0 <= self._missing_bytes <= MAX_BODY_BYTES:
            return self._close(f"a frame with a body of {self._missing_bytes} bytes")
        if offset == ASK:
            self._hello = b""
            return (
                []
                if 0 < self._missing_bytes <= MAX_HELLO_BYTES
                else self._close(f"a hello of {self._missing_bytes} bytes")
            )
        if self.stage in (Stage.SETTLING, Stage.ASKING):
            return self._close("the master sent a frame before it was told where to begin")
        if offset < 0 or (self._end and offset != self._end):
            return self._close(f"the master sent offset {offset}, and the log ends at {self._end}")
        if self._missing_bytes:
            self._end = offset  # an empty log begins wherever the master does
        return self._follow(now, proven=True) if self.stage is Stage.GREETED else []

    def _read_hello(self, now: float) -> list[Action]:
        body, self._hello = self._hello or b"", None
        try:
            self.master = decode_master_hello(body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        if self.master.refused is not None:
            return self._close(self.master.refused, refused=True)
        if self._end != self._start or self.stage is Stage.GREETED:
            return self._close("the master greeted after it had sent something else")
        # Perhaps late, when the plain form was begun: a master of ours does not feed it in that form.
        self.stage = Stage.GREETED
        end, start = self._log.end, self._log.end or None
        if not end and self._settings.copy_whole_log:
            start = self.master.first
        hello = SlaveHello(self._settings.slave_id, self._log.first, end, start, self._settings.sync_flush, self._spans)
        return self._send(hello.encode(), now)

    def _follow(self, now: float, *, proven: bool) -> list[Action]:
        self.stage, self.proven = Stage.FOLLOWING, proven
        return [Following(proven), *self._report(now)]

    def _report_progress(self, now: float) -> list[Action]:
        return self._report(now) if self.stage is Stage.FOLLOWING and self._progress > self.reported_offset else []

    @property
    def _progress(self) -> int:
        return self._log.flushed if self._settings.sync_flush else self._log.end

    def _report(self, now: float) -> list[Action]:
        self.reported_offset = self._progress
        return self._send(REPORT.pack(self.reported_offset), now)

    def _send(self, data: bytes, now: float) -> list[Action]:
        self.last_write = now
        return [SendToMaster(data)]

    def _close(
        self, reason: str, *, retry_s: float | None = None, refused: bool = False, at_once: bool = False
    ) -> list[Action]:
        self.stage = Stage.CLOSED
        return [Reconnect(reason, self._settings.retry_ms / 1000 if retry_s is None else retry_s, refused, at_once)]
