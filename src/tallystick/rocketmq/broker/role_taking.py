"""What is to be done, and in which order, when a broker takes up a role.

::

    master ─► slave    sends are refused ─► waits end, slaves are left ─► locks go ─► follows, and copies tables
    slave ─► master    copies nothing ─► its log ends, queues and offsets go on where they ended ─► sends are taken

At the start a broker takes up its first one in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import StorageError, TallyError, UsageError
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, RESETS
from tallystick.rocketmq.broker.lock_file import LockFile
from tallystick.rocketmq.broker.log import BrokerLog
from tallystick.rocketmq.broker.metadata_sync import MetadataSync
from tallystick.rocketmq.broker.role import Role, Standing, check_role
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.tables import BrokerTables
from tallystick.runtime.tasks import watch


@dataclass(frozen=True)
class RoleTaking:
    """Takes up roles. ``failed`` is called when the copying of tables ends with an error."""

    standing: Standing
    log: BrokerLog
    sync: MetadataSync
    tables: BrokerTables
    saver: Saver
    lock_file: LockFile
    lock_saver: Saver
    ha_port: int  # to listen at
    failed: Callable[[Exception], None]

    async def take(self, role: Role, broker_id: int) -> tuple[str, int] | None:
        """Take up a role. Returns the address of the HA port, or None for a slave. See ``Broker.take_role``."""
        check_role(role, broker_id)
        slave, store = role is Role.SLAVE, self.log.store
        if slave:
            self.standing.become(role, broker_id)
        else:
            await self.sync.take_role(slave=False)
        try:
            ha_address = await self._log_takes_role(slave=slave)
            self.tables.cut_offsets(slave=slave)
            await self.saver.save()
            if not slave:
                self._check_offsets()
        except TallyError:
            if self.standing.is_slave:
                await self.log.take_role(slave=True)  # it was one no more if only its port is taken
                await self._copy_tables()
            raise
        await self.lock_saver.save()  # what is under way, of who was a master
        self.standing.become(role, broker_id)
        self.tables.offsets.take_role()
        self.lock_file.take_role(is_new=not store.end)
        if slave:
            await self._copy_tables()
        return ha_address

    def stay(self, role: Role, broker_id: int) -> None:
        """Take up a role while the broker is a master, or a slave, already: it decides whether a master's sends wait
        for slaves. Raises UsageError for another id: the links of a slave, and its master, have the old one.
        """
        check_role(role, broker_id)
        if broker_id != self.standing.broker_id:
            raise UsageError("a slave gets another brokerId when it is started again", value=broker_id)
        self.standing.become(role, broker_id)

    def _check_offsets(self) -> None:
        """Raises StorageError when offsets are not on the disk: those that were cut would come back with a crash."""
        unsaved_files = self.saver.unsaved_files & {CONSUMER_OFFSETS, RESETS}
        if unsaved_files:
            raise StorageError(
                "this broker takes no messages as a master before the consumer offsets are saved that its log cut: "
                "make room in its config folder, or mend the disk, and start it again",
                files=sorted(unsaved_files),
            )

    async def _log_takes_role(self, *, slave: bool) -> tuple[str, int] | None:
        try:
            return await self.log.take_role(slave=slave)
        except OSError as error:
            raise UsageError(f"cannot listen for slaves: {error.strerror}", port=self.ha_port) from error

    async def _copy_tables(self) -> None:
        await self.sync.take_role(slave=True)
        self.sync.arrived(self.log.store.queues())
        watch(self.sync.tasks, self.failed)
