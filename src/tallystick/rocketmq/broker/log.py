"""The CommitLog of a running broker with all that hangs on it: threads, replication, waits, dispatch.

::

    put ─► append ─► the slaves' feeds ─► flush asked for ─► reput ─► who waits for a message
                                 flushed, or acknowledged by slaves ─► who waits to be told "stored"

With SYNC_FLUSH reput follows the flush instead. A slave appends what its master sends; the rest is the same.

A reput costs nearly the same for one message as for many, so where nobody waits for a message it lingers a little, or
until there is much for it; ``catch_up`` ends that for whoever is about to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tallystick.errors import TallyError
from tallystick.rocketmq.broker.metrics import SlaveLag
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha.acks import Settle, Settled
from tallystick.rocketmq.ha.entry import is_among
from tallystick.rocketmq.ha.master import HaMaster
from tallystick.rocketmq.ha.slave import HaSlave
from tallystick.rocketmq.ha.status import FollowStatus
from tallystick.rocketmq.ha.waits import Waits
from tallystick.rocketmq.remoting.tls import for_slaves
from tallystick.rocketmq.store.flusher import Flusher
from tallystick.rocketmq.store.rebuilder import Rebuilder
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.store.values import Arrival, PutRequest, PutResult
from tallystick.rocketmq.wire.bodies import HaStatus, MasterLink, SlaveLink
from tallystick.rocketmq.wire.sink_identity import SinkIdentity
from tallystick.runtime.outside import Outside

RETRY_S = 1.0  # after reput was stopped, by a full disk for example
LINGER_S = 0.01
LINGER_BYTES = 256 * 1024


@dataclass(frozen=True)
class Listeners:
    """The callbacks of a log, called on the loop."""

    settled: Callable[[list[Settle]], None]  # waits of sends are over
    awaited: Callable[[], bool]  # does anybody wait for a message?
    arrived: Callable[[list[Arrival]], None]  # messages became readable
    following: Callable[[], None]  # the master feeds this slave from now on
    failed: Callable[[Exception], None]  # the disk, or a task in the background: nothing more is stored
    rebuilt: Callable[[list[Arrival]], None]  # messages of a lost queue can be read again


class BrokerLog:
    """``take_role``, ``start``, and at the end ``close``, which closes the store too. A master has waits and feeds
    slaves; a slave follows. ``take_role`` begins the one and ends the other."""

    def __init__(
        self,
        outside: Outside,
        *,
        store: MessageStore,
        settings: BrokerSettings,
        standing: Standing,
        listeners: Listeners,
        instance: str,
    ) -> None:
        """``instance`` names this process to its slaves."""
        self.store, self._listeners, self._instance = store, listeners, instance
        allowed_addresses = settings.ha.allowed_addresses
        self._outside = for_slaves(
            outside, lambda host: is_among(host, allowed_addresses), dials=not settings.ha.plaintext
        )
        self._loop = asyncio.get_running_loop()
        self._sync_flush, self._standing = settings.store.sync_flush, standing
        self._settings, self._file_bytes = settings, settings.store.commit_log_file_bytes
        self._flusher = Flusher(
            store,
            clock=outside.clock,
            workers=outside.workers,
            interval_ms=settings.store.flush_interval_ms,
            flushed=self._flushed,
            failed=listeners.failed,
        )
        self._rebuilder = Rebuilder(
            store, outside.clock, outside.workers, rebuilt=listeners.rebuilt, failed=listeners.failed
        )
        self._waits: Waits | None = None
        self._master: HaMaster | None = None
        self._slave: HaSlave | None = None
        self._ha_address: str | None = None  # of the master that a slave follows
        self._dispatch_timer: asyncio.TimerHandle | None = None  # the next dispatch
        self._retrying = False  # it is one that the disk made wait
        self._lingers = False  # it is one that waits for more messages
        self._feed_is_due = False  # in the next turn of the loop

    async def take_role(self, *, slave: bool) -> tuple[str, int] | None:
        """Take up a role, at the start and whenever it changes; sends are refused meanwhile. Returns the address of the
        HA port, or None for a slave.

        Raises OSError if the port cannot be opened, and what ``MessageStore.promote`` raises: then it goes on as a
        slave.
        """
        if slave:
            await self._part_from_slaves()
            self.store.take_role(slave=True)
            self._follow()
            return None
        if self.store.slave:
            await self._become_master()
        ha = self._settings.ha_settings(self._standing.broker_id)
        waits = Waits(self._outside.clock, ha, self._listeners.settled, flushed=self.store.flushed)
        master = HaMaster(self._outside, self.store, waits, ha, file_bytes=self._file_bytes, instance=self._instance)
        address = await master.start()
        self._waits, self._master = waits, master
        return address

    async def _part_from_slaves(self) -> None:
        """Leave the slaves: acks that are under way come too late, and waits end in doubt."""
        if self._master is None or self._waits is None:
            return
        master, waits, self._master, self._waits = self._master, self._waits, None, None
        waits.give_up()
        await master.close()
        waits.close()
        self._dispatch_in(0)  # what is not synced yet: a slave does not wait for that

    async def _become_master(self) -> None:
        await self._part_from_master()
        try:
            arrivals = await self._flusher.between(self.store.promote)
        except TallyError:
            if self.store.failure is not None:
                self._listeners.failed(self.store.failure)
            self._follow()
            raise
        self.store.take_role(slave=False)
        if arrivals:
            self._listeners.arrived(arrivals)

    async def _part_from_master(self) -> None:
        """Leave the master: nothing more is appended."""
        slave, self._slave = self._slave, None
        if slave is not None:
            await slave.close()

    def _follow(self) -> None:
        if self._slave is None:
            self._slave = HaSlave(
                self._outside,
                log=self.store,
                settings=self._settings.ha_settings(self._standing.broker_id),
                on_appended=self._appended,
                on_following=self._following,
                failed=self._listeners.failed,
            )
            self._slave.follow(self._ha_address)

    def _following(self) -> None:
        status = self.follow_status()
        hello = status.master_hello if status.proven else None
        self.store.replicated.follow(hello.instance if hello is not None else "")
        self._listeners.following()

    def start(self) -> None:
        """Begin to flush, and to call the listeners."""
        self._flusher.start()
        self._rebuilder.start()
        self._dispatch()

    def put(self, put_requests: Sequence[PutRequest], sink: SinkIdentity | None = None) -> list[PutResult]:
        """Append all messages of a tick at once; ``sink`` is the identity of the last one, if it is one of a sink."""
        before = self.store.end
        puts = self.store.put(put_requests, sink)
        if self.store.end > before or self.store.failure is not None:
            self._appended()
        return puts

    @property
    def waits(self) -> bool:
        """Whether the responses to sends wait for disk or slaves, unless the messages opt out."""
        return self._sync_flush or self._standing.waits_for_slaves

    def wait(self, first_end: int, end: int) -> Settled:
        """Begin to wait until disk and slaves have the sends up to ``end``, the first of which ends at ``first_end``.
        Call it at most once a tick. What is deleted by now is waited for no more: no slave will get it."""
        assert self._waits is not None, "who sends to a slave is refused"
        replicas = self._standing.waits_for_slaves and end > self.store.first
        first_end = max(first_end, self.store.first + 1)
        return self._waits.appended(end, flush=self._sync_flush, replicas=replicas, first_end=first_end)

    def catch_up(self) -> None:
        """Dispatch what was stored before, as far as one turn of the loop has time for it."""
        if self._dispatch_timer is not None and not self._retrying:
            self._dispatch()

    def follow(self, ha_address: str | None) -> None:
        """Follow the master whose HA port is at ``ha_address``, while this is a slave."""
        self._ha_address = ha_address
        if self._slave is not None:
            self._slave.follow(ha_address)

    async def close(self) -> None:
        """Leave slaves or master, sync, and close the store."""
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()  # and none is set in its place
        self._lingers = False
        if self._master is not None:
            await self._master.close()
        await self._part_from_master()
        if self._waits is not None:
            self._waits.close()
        await self._rebuilder.close()
        await self._flusher.close()

    # What happens to the log

    def _appended(self) -> None:
        if self.store.failure is not None:
            return self._listeners.failed(self.store.failure)
        if self._standing.waits_for_slaves:
            self._feed()
        elif self._master is not None and not self._feed_is_due:
            # No response waits for slaves: those of this turn leave first, and whoever gets them goes on meanwhile.
            self._feed_is_due = True
            self._loop.call_soon(self._feed)
        if self._sync_flush:
            self._flusher.request()
        elif self._listeners.awaited():
            self._dispatch()
        else:
            self._linger()

    def _feed(self) -> None:
        self._feed_is_due = False
        if self._master is not None:
            self._master.appended(self.store.end)

    def _flushed(self, offset: int) -> None:
        if self._waits is not None:
            self._waits.flushed(offset)
        if self._slave is not None:
            self._slave.flushed()
        self._dispatch()

    def _dispatch(self) -> None:
        """Dispatch a part of what may be dispatched, and the rest in later turns of the loop."""
        self._stop_timer()
        before = self.store.reput_offset
        try:
            arrivals = self.store.reput()
        except Exception as error:  # whatever it is: nothing more would become readable
            return self._listeners.failed(error)
        if arrivals:
            self._listeners.arrived(arrivals)
        self._retrying = self.store.refusal is not None
        if self._retrying:
            self._dispatch_in(RETRY_S)
        elif before < self.store.reput_offset < self.store.end or self.store.reput_goes_on:
            self._dispatch_in(0)

    def _linger(self) -> None:
        """Dispatch a little later or, if there is much by now, in the next turn of the loop."""
        if self.store.end - self.store.reput_offset >= LINGER_BYTES:
            if self._lingers:
                self._stop_timer()
            self._dispatch_in(0)
        elif self._dispatch_timer is None:
            self._dispatch_in(LINGER_S)
            self._lingers = True

    def _stop_timer(self) -> None:
        if self._dispatch_timer is not None:
            self._dispatch_timer.cancel()
            self._dispatch_timer = None
        self._lingers = False

    def _dispatch_in(self, delay_s: float) -> None:
        if self._dispatch_timer is None:
            self._dispatch_timer = self._loop.call_later(delay_s, self._dispatch)

    # How replication stands

    def follow_status(self) -> FollowStatus:
        """Returns how a slave follows its master."""
        assert self._slave is not None, "a master follows nobody"
        return self._slave.status()

    def ha_status(self, metadata_age_s: float | None = None, tables_why: str | None = None) -> HaStatus:
        """Returns the state of replication as GET_BROKER_HA_STATUS shows it; of a slave with the age of its copy of the
        master's tables, and why it is not newer."""
        end = self.store.end
        if self._slave is not None:
            status = self._slave.status()
            link = MasterLink(
                status.master,
                status.bytes_per_s,
                status.end,
                status.last_read_ms,
                status.last_write_ms,
                state=status.state,
                why=status.why,
                metadata_age_s=metadata_age_s,
                tables_why=tables_why,
                ends_known=self.store.replicated.ends_known,
            )
            return HaStatus(False, end, link=link)
        slaves = self._master.status() if self._master is not None else []
        links = [
            SlaveLink(
                slave.address,
                slave.acked,
                slave.behind_bytes,
                slave.in_sync,
                slave.bytes_per_s,
                max(slave.sent_offset, 0),
                slave.slave_id,
                slave.behind_s,
                slave.why,
            )
            for slave in slaves
        ]
        return HaStatus(not self._standing.is_slave, end, sum(slave.in_sync for slave in slaves), links)

    def lags(self) -> list[SlaveLag]:
        """Returns the lags of a master's slaves."""
        slaves = self._master.status() if self._master is not None else []
        return [
            SlaveLag(slave.slave_id or slave.address, slave.in_sync, slave.behind_bytes, slave.behind_s)
            for slave in slaves
        ]
