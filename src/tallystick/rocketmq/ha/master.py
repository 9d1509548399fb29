"""The master's HA port: one feed for each slave, woken by every append. The log's mapped bytes go to the socket
uncopied.

A slave that does not read costs its socket buffer and the views of one wake, and no more: its link is not written to
until it has taken what it was sent. A slave has little to say: of who sends more than that a turn of the loop reads
``READ_BYTES``.
"""

from __future__ import annotations

import asyncio
from typing import cast

from tallystick.rocketmq.ha import feed as feeds
from tallystick.rocketmq.ha.admission import AdmissionCore
from tallystick.rocketmq.ha.entry import entry_refusal
from tallystick.rocketmq.ha.feed import FeedCore
from tallystick.rocketmq.ha.log import ReplicatedLog, range_of
from tallystick.rocketmq.ha.proof import objection
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.ha.status import Ages, SlaveStatus, Speed
from tallystick.rocketmq.ha.turn_bytes import TurnBytes
from tallystick.rocketmq.ha.waits import Waits
from tallystick.rocketmq.wire.ha import HEAD, MasterHello
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.network import Listener, no_delay
from tallystick.runtime.once import Once
from tallystick.runtime.outside import Outside
from tallystick.runtime.peers import peer_of

WAKE_BYTES = 1024 * 1024  # to one slave in one turn of the loop
KNOWN_BYTES = 2 * WAKE_BYTES  # to all slaves that are known, in one turn
STRANGERS_BYTES = WAKE_BYTES  # to all others
UNPROVEN_BYTES = 64 * 1024  # to one that acknowledged none of them
WRITE_HIGH_BYTES = 1024 * 1024
MAX_ORIGINALS = 1024  # hosts of original slaves that were empty when they came
READ_BYTES = 8 * 1024  # most hellos are shorter, and a thousand reports


class HaMaster:
    """``start`` it, call ``appended`` after each append, and ``close`` it. ``waits`` gets the slaves' connections and
    acks."""

    def __init__(
        self,
        outside: Outside,
        log: ReplicatedLog,
        waits: Waits,
        settings: HaSettings,
        *,
        file_bytes: int,
        instance: str = "",
    ) -> None:
        """``file_bytes`` is the size of a file of the CommitLog; ``instance`` names this process to its slaves."""
        self.instance = instance
        self._network, self.clock, self.events = outside.network, outside.clock, outside.events
        self.log, self.waits, self.settings, self.file_bytes = log, waits, settings, file_bytes
        self._links: dict[SlaveConnection, None] = {}
        self._slaves: dict[str, SlaveConnection] = {}  # by name, each slave once
        self._admission: AdmissionCore[SlaveConnection] = AdmissionCore(settings.max_slaves, settings.max_strangers)
        self._known_bytes, self._strangers_bytes = TurnBytes(KNOWN_BYTES), TurnBytes(STRANGERS_BYTES)
        self.buffer = memoryview(bytearray(READ_BYTES))  # of all links: each takes what came at once
        self._events_once = Once()  # of strangers: by host, what an operator was told
        self._original_firsts: dict[str, int] = {}  # by host: where the log of an empty slave began
        self._ages = Ages(log.end, self.clock.now())
        self._listener: Listener | None = None

    async def start(self) -> tuple[str, int]:
        """Listen. Returns the host and port. Raises OSError."""
        settings = self.settings
        self._listener = await self._network.listen(settings.host, settings.port, lambda: SlaveConnection(self))
        return self._listener.address

    def appended(self, end: int) -> None:
        """The log grew. Call it once a tick."""
        self._ages.appended(end, self.clock.now())
        for link in self._links:
            link.pump()

    def status(self) -> list[SlaveStatus]:
        end, now = self.log.end, self.clock.now()
        return [link.status(end, self._ages, now) for link in self._links]

    async def close(self) -> None:
        """Accept nothing more, close all links."""
        if self._listener is not None:
            await self._listener.close()
        for turn_bytes in (self._known_bytes, self._strangers_bytes):
            turn_bytes.close()
        for link in tuple(self._links):
            link.abort()

    # What links tell.

    def opened(self, link: SlaveConnection) -> None:
        self._links[link] = None
        self._make_room(self._admission.arrived(link, link.host), "its place is needed: it has not said where it is")

    def admit(self, link: SlaveConnection, transport: asyncio.BaseTransport) -> None:
        """End a link at once whose peer may not follow: nothing of the log, nor where it ends, is told it."""
        settings = self.settings
        if settings.asks and not link.closing:
            why = entry_refusal(transport, link.host, settings.allowed_addresses, settings.allowed_names)
            if why is not None:
                link.abort(f"refused: {why}")

    def started(self, link: SlaveConnection, start: feeds.StartFeed, *, compared: bool) -> None:
        """A slave reported where its log ends. A second link of one slave replaces the first (R2)."""
        link.name = start.slave_id or link.peer
        self._make_room(
            self._admission.started(link, start.slave_id, compared=compared),
            "its place is needed: it has not shown to be a slave",
        )
        if link.closing:
            return
        former_link = self._slaves.get(link.name)
        self._slaves[link.name] = link
        self.events.emit("slave follows", slave=link.name, peer=link.peer, end=start.end, position=start.position)
        if former_link is not None:
            self.events.emit("slave replaced", slave=link.name, peer=former_link.peer, reason="it connected again")
            former_link.abort("the slave connected again")
        if not start.proven and self._events_once.is_new((link.host, "unproven")):
            self.events.emit(
                "slave is unproven", slave=link.name, reason="an original slave: the logs were not compared"
            )
        self.waits.connected(link.name, start.end, self._first(link, start))

    def _first(self, link: SlaveConnection, start: feeds.StartFeed) -> int:
        """Returns where a slave's log begins. An original does not say it when it connects again: it is then where one
        of its host began last."""
        if start.slave_id is not None:
            return start.first or 0
        if start.first is not None:
            self._original_firsts.pop(link.host, None)
            self._original_firsts[link.host] = start.first
            if len(self._original_firsts) > MAX_ORIGINALS:
                self._original_firsts.pop(next(iter(self._original_firsts)))
        return self._original_firsts.get(link.host, 0)

    def acked(self, link: SlaveConnection, offset: int, *, took: bool) -> None:
        """A slave acknowledged all bytes before ``offset``; ``took``: bytes that it was sent over this link are among
        them."""
        if took:
            self._admission.took(link)
        self.waits.reported(link.name, offset)

    def turn_bytes(self, link: SlaveConnection) -> TurnBytes:
        """Returns what a link shares with others of its kind: strangers, however many, take nothing from slaves."""
        return self._known_bytes if self._admission.is_known(link) else self._strangers_bytes

    def closed(self, link: SlaveConnection, reason: str) -> None:
        self._links.pop(link, None)
        self._admission.disconnected(link)
        is_current = self._slaves.get(link.name) is link
        if is_current:
            del self._slaves[link.name]
            self.waits.disconnected(link.name)
        if is_current or link.said_hello or self._events_once.is_new((link.host, reason)):
            self.events.emit("slave link closed", peer=link.peer, slave=link.name or None, reason=reason)

    def _make_room(self, link: SlaveConnection | None, reason: str) -> None:
        if link is not None:
            self._admission.disconnected(link)
            link.abort(reason)


class SlaveConnection(asyncio.BufferedProtocol):
    """The shell of a ``FeedCore``."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._speed = Speed()
        self._start: feeds.StartFeed | None = None
        self._paused = False
        self._took = False  # bytes that it was sent
        self._compared = False  # bytes of its log with those of the master's
        self.said_hello = False
        self._reason = "the slave closed it"
        self.name = self.peer = self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        no_delay(transport)
        peer = peer_of(transport) or ("unknown", 0)
        self.host, self.peer = peer[0], f"{peer[0]}:{peer[1]}"
        master = self._master
        self._feed = FeedCore(master.settings, master.file_bytes, master.clock.now())
        self._alarm = Alarm(master.clock, self._tick)
        self._alarm.set(self._feed.wake_at())
        master.opened(self)
        master.admit(self, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._alarm.cancel()
        self._master.closed(self, str(error) if error is not None else self._reason)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._master.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport.is_closing():
            return
        if nbytes == READ_BYTES:  # else a loop reads on as long as more comes
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
        data = bytes(self._master.buffer[:nbytes])
        self._do(self._feed.received(data, range_of(self._master.log), self._master.clock.now()))

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def abort(self, reason: str = "closed here") -> None:
        self._reason = reason
        self._transport.abort()

    def pump(self) -> None:
        """Send what the log has and the slave takes, ``WAKE_BYTES`` at most, and no more than this turn has left; the
        rest in the next turns."""
        if not self._feed.feeding or self._paused or self._transport.is_closing():
            return
        if self._feed.position >= self._master.log.end:  # it has all, as after most reports
            return
        now, turn_bytes = self._master.clock.now(), self._master.turn_bytes(self)
        limit_bytes = remaining_bytes = min(self._limit_bytes(), turn_bytes.left_for(self.pump))
        frames: list[bytes | memoryview] = []
        while remaining_bytes > 0:
            piece = self._master.log.slice(self._feed.position, remaining_bytes)
            if not piece:
                break
            remaining_bytes -= len(piece)
            frames += self._feed.cut(piece, now)
        if frames:
            self._speed.count(limit_bytes - remaining_bytes, now)
            turn_bytes.spend(limit_bytes - remaining_bytes)
            self._transport.writelines(frames)
        if remaining_bytes <= 0 and not self._paused and self._limit_bytes() > 0:
            turn_bytes.wait(self.pump)

    def _limit_bytes(self) -> int:
        """Returns how much may be sent now. To who acknowledged none of it that is little in all: strangers that come
        together and take nothing are no work for the loop."""
        if self._took or self._start is None:
            return WAKE_BYTES
        return max(0, UNPROVEN_BYTES - (self._feed.position - self._start.position))

    def status(self, end: int, ages: Ages, now: float) -> SlaveStatus:
        start, acked = self._start, self._feed.acked
        slave_end = max(acked, start.end if start is not None else 0)
        near = start is not None and end - slave_end < self._master.settings.max_gap_bytes
        late = self._master.waits.core.is_late(self.name)
        in_sync = near and not late
        if start is None:
            why = "it has not yet said where its log ends"
        elif late:
            why = "it did not acknowledge in time: it is not waited for until it has caught up"
        elif not near:
            why = f"it is {end - slave_end} bytes behind: too far to be waited for"
        elif acked < end:
            why = "it catches up" if not self._paused else "it does not take what it is sent"
        else:
            why = "it has everything"
        return SlaveStatus(
            self.peer,
            start.slave_id if start else None,
            start is not None,
            bool(start and start.proven),
            start.position if start else -1,
            self._feed.position,
            acked,
            max(0, end - slave_end),
            ages.behind_s(slave_end, end, now),
            self._speed.per_second(now),
            in_sync,
            why,
        )

    def _tick(self) -> None:
        master = self._master
        self._do(self._feed.tick(range_of(master.log), master.clock.now(), writable=not self._paused))

    def _do(self, actions: list[feeds.Action]) -> None:
        master = self._master
        for action in actions:
            match action:
                case feeds.Greet(refusal):
                    log = range_of(master.log)
                    sync_flush = master.settings.sync_flush
                    hello = MasterHello(log.first, log.end, log.flushed, sync_flush, refusal, master.instance)
                    self._transport.write(hello.encode())
                case feeds.Verify(hello):
                    reason_against = objection(master.log, hello)
                    self.said_hello, self._compared = True, bool(hello.spans)
                    self._do(self._feed.verified(hello, reason_against, range_of(master.log), master.clock.now()))
                case feeds.StartFeed():
                    self._start = action
                    master.started(self, action, compared=self._compared)
                case feeds.Acked(offset):
                    if not self.closing:
                        start = self._start.position if self._start is not None else offset
                        self._took = self._took or offset > start
                        master.acked(self, offset, took=offset > start)
                case feeds.SendHeartbeat(offset):
                    self._transport.write(HEAD.pack(offset, 0))
                case feeds.Disconnect(reason, at_once):
                    self._reason = reason
                    (self._transport.abort if at_once else self._transport.close)()
        self.pump()
        self._alarm.set(self._feed.wake_at())
