"""The master's side of one slave's link: where the feed begins, what a report means, when the link ends (H4 to H7, R1,
R3).

::

    NEW ──a report ≥ 0──→ FED                    an original slave
     └──the report -1──→ GREETED ──a hello──→ CHECKED ──the logs agree──→ FED

A slave of ours that has waited too long for the greeting goes on as with an original master, and reports. The master
does not feed it for that: the greeting is on its way, and the slave's hello will follow. A link that is not FED within
``greeting_ms`` is closed, whatever else comes over it; one with more than ``MAX_REPORTS`` reports before the hello is
closed at once. One that is closed sends what is under way first, and ends when its peer takes nothing for as long as
silence may last: else it kept its place.

Where the original sends heartbeats for ever, to a slave that is ahead of the master or asks for deleted bytes, this
master closes the link and says why. An original slave connects again after 5 s and is closed again; had its link been
kept, it would have got other bytes behind its own as soon as the master's log reached that far.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from tallystick.errors import RemoteProtocolError
from tallystick.rocketmq.ha.log import LogRange
from tallystick.rocketmq.ha.proof import WIPE
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.wire.ha import ASK, HEAD, MAX_HELLO_BYTES, REPORT, TELL, SlaveHello, decode_slave_hello


@dataclass(frozen=True)
class Greet:
    """Send a ``MasterHello``; with ``refusal`` it is the last frame that the slave gets."""

    refusal: str | None = None


@dataclass(frozen=True)
class Verify:
    """Compare the slave's log with the master's, then call ``verified``."""

    hello: SlaveHello


@dataclass(frozen=True)
class StartFeed:
    """The feed begins: the slave's log ends at ``end``, and it gets all bytes from ``position`` on. It has nothing
    before ``first``; an original slave says this only by being empty (None: it is not). ``proven``: the logs were
    compared."""

    first: int | None
    end: int
    position: int
    slave_id: str | None
    proven: bool


# One comes with each report, and a struct is made in a tenth of the time of a dataclass.
class Acked(msgspec.Struct, frozen=True, gc=False):
    """The slave acknowledged all bytes before ``offset``."""

    offset: int


@dataclass(frozen=True)
class SendHeartbeat:
    """Send an empty frame at this offset."""

    offset: int


@dataclass(frozen=True)
class Disconnect:
    """End the link. ``at_once``: drop what is unsent, as the slave does not take it."""

    reason: str
    at_once: bool = False


Action = Greet | Verify | StartFeed | Acked | SendHeartbeat | Disconnect


MAX_REPORTS = 64  # between the greeting and the hello: a slave that waits for the greeting reports each heartbeat_ms


class _Stage(Enum):
    NEW = auto()
    GREETED = auto()
    CHECKED = auto()
    FED = auto()
    CLOSED = auto()  # when the slave has taken what it was sent
    ENDED = auto()


class FeedCore:
    """The core of one link. ``tick`` is due at ``wake_at``; events get the range of the log as an argument."""

    def __init__(self, settings: HaSettings, file_bytes: int, now: float) -> None:
        self._settings, self._file_bytes = settings, file_bytes
        self.position = 0  # the next byte to send, once ``feeding``
        self.acked = -1
        self._stage = _Stage.NEW
        self._buffer = b""  # what is not yet a whole unit, or a whole hello
        self._skipped = 0  # reports between the greeting and the hello
        self._reason = ""  # why it is closed
        self._last_read = self._last_write = now
        self._greeting_ends = now + settings.greeting_ms / 1000

    @property
    def feeding(self) -> bool:
        return self._stage is _Stage.FED

    def received(self, data: bytes, log: LogRange, now: float) -> list[Action]:
        """Bytes came in one read. Of several whole reports only the last one counts, as with the original."""
        if self._stage in (_Stage.CLOSED, _Stage.ENDED):
            return []
        self._last_read = now
        self._buffer += data
        actions: list[Action] = []
        if self._stage is _Stage.NEW and self._unit(0) == ASK:
            self._buffer = self._buffer[REPORT.size :]
            self._stage = _Stage.GREETED
            actions.append(Greet())
        if self._stage is _Stage.GREETED:
            return [*actions, *self._hello()]
        whole = len(self._buffer) - len(self._buffer) % REPORT.size
        if whole:
            (offset,) = REPORT.unpack_from(self._buffer, whole - REPORT.size)
            self._buffer = self._buffer[whole:]
            actions += self._report(offset, log, now)
        return actions

    def verified(self, hello: SlaveHello, objection: str | None, log: LogRange, now: float) -> list[Action]:
        """The logs were compared. ``objection`` is why the slave cannot be fed, or None."""
        if objection is not None:
            return [Greet(objection), *self._close(objection)]
        position = self._newest_file(log) if hello.start is None else hello.start
        self._feed_from(position)
        # The slave reports at the first frame, so it gets one at once.
        first = hello.first if hello.end else position
        return [StartFeed(first, hello.end, position, hello.slave_id, proven=True), *self._heartbeat(now)]

    def cut(self, data: memoryview, now: float) -> list[bytes | memoryview]:
        """Returns the frames for ``data``, the log's bytes at ``position``, and moves ``position`` behind them."""
        frames: list[bytes | memoryview] = []
        for start in range(0, len(data), self._settings.batch_bytes):
            body = data[start : start + self._settings.batch_bytes]
            frames += (HEAD.pack(self.position, len(body)), body)
            self.position += len(body)
        self._last_write = now
        return frames

    def tick(self, log: LogRange, now: float, *, writable: bool) -> list[Action]:
        """Send a heartbeat, or end the link, when that is due. ``writable``: the slave takes what it is sent."""
        if self._stage is _Stage.ENDED:
            return []
        is_silent = now >= self._silence_at()
        if self._stage is _Stage.CLOSED:
            return self._close(self._reason, at_once=True) if is_silent else []
        if is_silent:
            return self._close("heard nothing from the slave for too long", at_once=True)
        if not self.feeding and now >= self._greeting_ends:
            return self._close("it did not say in time where its log ends")
        if not self.feeding or now < self._heartbeat_at():
            return []
        if self.position < log.first:  # there is nothing to send it, now or ever
            return self._close(self._deleted(self.position, log))
        self._last_write = now  # while the last frame is not out, the link is not idle
        return [SendHeartbeat(self.position)] if writable else []

    def wake_at(self) -> float | None:
        """Returns when ``tick`` is due, or None if the link has ended."""
        if self._stage is _Stage.ENDED:
            return None
        if self._stage is _Stage.CLOSED:
            return self._silence_at()
        return min(self._silence_at(), self._heartbeat_at() if self.feeding else self._greeting_ends)

    def _silence_at(self) -> float:
        return self._last_read + self._settings.housekeeping_ms / 1000

    def _heartbeat_at(self) -> float:
        return self._last_write + self._settings.heartbeat_ms / 1000

    def _heartbeat(self, now: float) -> list[Action]:
        self._last_write = now
        return [SendHeartbeat(self.position)]

    def _unit(self, number: int) -> int | None:
        """Returns one of the eight-byte numbers that came first, or None if it is not whole yet."""
        start = number * REPORT.size
        if len(self._buffer) < start + REPORT.size:
            return None
        return int(REPORT.unpack_from(self._buffer, start)[0])

    def _skip_reports(self) -> bool:
        """Drop the reports before a hello. Returns False if there are too many."""
        before = 0
        while self._unit(before) not in (TELL, None):
            before += 1
            if self._skipped + before > MAX_REPORTS:
                return False
        self._skipped += before
        self._buffer = self._buffer[before * REPORT.size :]
        return True

    def _hello(self) -> list[Action]:
        if not self._skip_reports():
            return self._close(f"more than {MAX_REPORTS} reports before its hello")
        size = self._unit(1)
        if size is None:
            return []
        if not 0 < size <= MAX_HELLO_BYTES or size % REPORT.size:
            return self._close(f"a hello of {size} bytes")
        body, rest = self._buffer[2 * REPORT.size :][:size], self._buffer[2 * REPORT.size + size :]
        if len(body) < size:
            return []
        if rest:  # after its hello a slave reports only when it got a frame
            return self._close("the slave spoke before its turn")
        try:
            hello = decode_slave_hello(body)
        except RemoteProtocolError as error:
            return self._close(str(error))
        self._buffer = b""
        self._stage = _Stage.CHECKED
        return [Verify(hello)]

    def _report(self, offset: int, log: LogRange, now: float) -> list[Action]:
        if self._stage is not _Stage.FED:
            return self._first_report(offset, log, now)
        if not 0 <= offset <= self.position:
            return self._close(f"the slave acknowledged {offset}, and only {self.position} was sent")
        if offset == self.acked:
            return []
        self.acked = max(self.acked, offset)
        return [Acked(self.acked)]

    def _first_report(self, offset: int, log: LogRange, now: float) -> list[Action]:
        if offset < 0:
            return self._close(f"the slave reported {offset} where its log cannot end")
        if offset > log.end:
            return self._close(
                f"the slave's log reaches to {offset}, the master's only to {log.end}: the master lost its end; save "
                f"the slave's log before anything else, then {WIPE}"
            )
        if 0 < offset < log.first:
            return self._close(self._deleted(offset, log))
        late = now >= self._heartbeat_at()
        self._feed_from(offset or self._newest_file(log))
        start = StartFeed(None if offset else self.position, offset, self.position, slave_id=None, proven=False)
        return [start, *(self._heartbeat(now) if late else [])]

    def _deleted(self, offset: int, log: LogRange) -> str:
        return f"the slave goes on at {offset}, the master's log begins at {log.first}: {WIPE}"

    def _newest_file(self, log: LogRange) -> int:
        return log.end - log.end % self._file_bytes

    def _feed_from(self, position: int) -> None:
        self.position = position
        self._stage = _Stage.FED

    def _close(self, reason: str, *, at_once: bool = False) -> list[Action]:
        self._stage, self._reason = _Stage.ENDED if at_once else _Stage.CLOSED, reason
        self._buffer = b""
        return [Disconnect(reason, at_once)]
