"""The slave's link to its master: it connects, appends what comes, reports, and tries again for ever (H4 to H6, H8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import cast

from tallystick.errors import StorageError
from tallystick.rocketmq.ha.follow import Action, Append, FollowCore, Following, Reconnect, SendToMaster, Stage
from tallystick.rocketmq.ha.log import ReplicatedLog, place_of
from tallystick.rocketmq.ha.proof import spans_of
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.ha.status import FollowStatus, Speed
from tallystick.rocketmq.wire.ha import Span
from tallystick.runtime.alarm import Alarm
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch
from tallystick.runtime.turn_steps import in_turns

ARENA_BYTES = 1024 * 1024
CONNECT_S = 5.0

STATES = {
    Stage.SETTLING: "syncing what it has",
    Stage.ASKING: "asking the master",
    Stage.GREETED: "waiting for the master to compare the logs",
    Stage.FOLLOWING: "following",
    Stage.CLOSED: "closing",
}


class HaSlave:
    """Call ``follow`` with a master or with None; ``close`` it at the end. All methods run on the loop."""

    def __init__(
        self,
        outside: Outside,
        *,
        log: ReplicatedLog,
        settings: HaSettings,
        on_appended: Callable[[], None],
        on_following: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``on_appended()`` is called after each append, a failed one too: it dispatches the bytes, and begins a sync
        that ends in a call of ``flushed``.

        ``on_following()`` is called when a link begins to feed this log, ``failed(error)`` when the slave can follow no
        master any more.
        """
        self._network, self.clock, self._events = outside.network, outside.clock, outside.events
        self.log, self.settings = log, settings
        self.on_appended, self._on_following, self._failed = on_appended, on_following, failed
        self.arena = memoryview(bytearray(ARENA_BYTES))
        self.speed = Speed()
        self.last_read_ms = self.last_write_ms = 0
        self._master: str | None = None
        self._link: MasterConnection | None = None
        self._links = 0  # how many have fed it
        self._master_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._why = "no master is known"

    def follow(self, master: str | None) -> None:
        """Follow the HA port at ``master`` (host:port), or none. A link to another master ends."""
        if master == self._master:
            return
        self._master = master
        self._why = "no master is known" if master is None else "not yet connected"
        self._master_changed.set()
        if self._link is not None:
            self._link.end(self._why)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            watch([self._task], self._failed)

    def flushed(self) -> None:
        """A sync is done: more of the log is durable."""
        if self._link is not None:
            self._link.flushed()

    def status(self) -> FollowStatus:
        core = self._link.core if self._link is not None else None
        feeds = core is not None and core.stage is Stage.FOLLOWING
        return FollowStatus(
            self._master,
            STATES[core.stage] if core else "not connected",
            bool(core and core.proven),
            self.log.end,
            self.log.flushed,
            core.reported_offset if core else -1,
            self.speed.per_second(self.clock.now()),
            self.last_read_ms,
            self.last_write_ms,
            core.master if core else None,
            self._why,
            self._links if feeds else 0,
        )

    async def close(self) -> None:
        """Follow no master any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._link is not None:
            self._link.end("closed here")

    async def _run(self) -> None:
        while True:
            self._master_changed.clear()
            retry_s = await self._stay(self._master) if self._master is not None else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._master_changed.wait()

    async def _stay(self, master: str) -> float:
        """Connect and follow until the link ends. Returns how long to wait before the next attempt."""
        host, _, port = master.rpartition(":")
        spans = await in_turns(spans_of(self.log))
        link = MasterConnection(self, master, spans)
        try:
            await self._network.connect(host.strip("[]"), int(port), lambda: link, CONNECT_S)
        except (OSError, ValueError, OverflowError) as error:
            self._explain(f"cannot connect to {master}: {error or 'no answer'}")
            return self.settings.retry_ms / 1000
        if self._master != master:  # changed while connecting
            link.end(self._why)
        return (await link.closed).retry_s

    # What the link tells.

    def opened(self, link: MasterConnection) -> None:
        self._link = link

    def following(self, master: str, *, proven: bool) -> None:
        self._why = ""
        self._links += 1
        self._events.emit("follows master", master=master, end=self.log.end, proven=proven)
        if not proven:
            self._events.emit(
                "master is unproven", master=master, reason="an original master: the logs were not compared"
            )
        self._on_following()

    def ended(self, close: Reconnect) -> None:
        self._link = None
        self._explain(close.reason)

    def _explain(self, why: str) -> None:
        """Emit the reason why nothing is copied: once, however often the slave tries again."""
        if why != self._why:
            self._why = why
            self._events.emit("master link closed", master=self._master, reason=why)


class MasterConnection(asyncio.BufferedProtocol):
    """The shell of a ``FollowCore``. ``closed`` is done when the connection has ended, with the reason."""

    def __init__(self, slave: HaSlave, master: str, spans: tuple[Span, ...]) -> None:
        """``spans`` are those of the log's end, which nothing but such a connection moves."""
        self._slave, self._master, self._spans = slave, master, spans
        self.closed: asyncio.Future[Reconnect] = asyncio.get_running_loop().create_future()
        self._close: Reconnect | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        slave, now = self._slave, self._slave.clock.now()
        self._transport = cast("asyncio.Transport", transport)
        self._alarm = Alarm(slave.clock, self._tick)
        self.core = FollowCore(slave.settings, place_of(slave.log), self._spans, now)
        slave.opened(self)
        self._do(self.core.connected(now))
        if self.core.stage is Stage.SETTLING:
            slave.on_appended()

    def connection_lost(self, error: Exception | None) -> None:
        self._alarm.cancel()
        retry_s = self._slave.settings.retry_ms / 1000
        close = self._close or Reconnect(str(error or "the master closed the link"), retry_s)
        self._slave.ended(close)
        if not self.closed.done():  # cancelled with the task that waited for it
            self.closed.set_result(close)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._slave.arena

    def buffer_updated(self, nbytes: int) -> None:
        slave, now = self._slave, self._slave.clock.now()
        slave.speed.count(nbytes, now)
        slave.last_read_ms = slave.clock.wall_ms()
        self._do(self.core.received(slave.arena[:nbytes], now))

    def flushed(self) -> None:
        self._do(self.core.flushed(place_of(self._slave.log), self._slave.clock.now()))

    def end(self, reason: str) -> None:
        """End the link from here. Another master may be tried at once."""
        self._close = Reconnect(reason, 0.0)
        self._transport.abort()

    def _tick(self) -> None:
        self._do(self.core.tick(self._slave.clock.now()))

    def _do(self, actions: list[Action]) -> None:
        slave, pending_actions = self._slave, deque(actions)
        while pending_actions and not self._transport.is_closing():
            match pending_actions.popleft():
                case SendToMaster(data):
                    slave.last_write_ms = slave.clock.wall_ms()
                    self._transport.write(data)
                case Append(offset, parts):
                    pending_actions.extend(self._append(offset, parts))
                case Following(proven):
                    slave.following(self._master, proven=proven)
                case Reconnect() as close:
                    self._close = close
                    (self._transport.abort if close.at_once else self._transport.close)()
        self._alarm.set(self.core.wake_at())

    def _append(self, offset: int, parts: tuple[memoryview, ...]) -> list[Action]:
        slave = self._slave
        try:
            slave.log.append_raw(offset, parts[0] if len(parts) == 1 else b"".join(parts))
        except StorageError as error:
            slave.on_appended()
            return [Reconnect(f"cannot append: {error}", slave.settings.retry_ms / 1000)]
        slave.on_appended()
        return self.core.appended(place_of(slave.log), slave.clock.now())
