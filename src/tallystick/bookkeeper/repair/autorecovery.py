"""Auditor and replicator of one process, in a bookie's or on their own (the original's ``AutoRecoveryMain``)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tallystick.bookkeeper.ledger.client import LedgerClient
from tallystick.bookkeeper.ledger.settings import ClientSettings, secured
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.repair.auditor import Auditor
from tallystick.bookkeeper.repair.copy_audit import CopyAudit
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.runtime.outside import Outside
from tallystick.runtime.pace import Pace
from tallystick.runtime.tasks import watch

Connect = Callable[..., Awaitable[MetadataDriver]]


class AutoRecovery:
    """Both parts, made by ``start``; ``failure`` gets an exception when one cannot go on. ``close`` it."""

    def __init__(
        self,
        driver: MetadataDriver,
        name: str,
        settings: RepairSettings,
        outside: Outside,
        *,
        within: Pace | None = None,
    ) -> None:
        """``within`` is the pace of all repairs of the process, that of a bookie's own copies too."""
        self._client = LedgerClient(driver, outside, secured(ClientSettings()))
        self._events = outside.events
        self.auditor = Auditor(driver, name, settings, outside.clock, outside.events)
        self.replicator = Replicator(self._client, name, settings, within=within)
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        copies = CopyAudit(self._client.context, self._client.placement, self.auditor, settings)
        self._tasks = [asyncio.create_task(self.auditor.run()), asyncio.create_task(copies.run())]
        if settings.ledgers_at_once:
            self._tasks.append(asyncio.create_task(self.replicator.run()))
        watch(self._tasks, self._failed)

    @classmethod
    async def start(
        cls,
        uri: str,
        name: str,
        settings: RepairSettings,
        outside: Outside,
        *,
        session_timeout_s: float = 10.0,
        connect: Connect = open_driver,
        within: Pace | None = None,
    ) -> AutoRecovery:
        """Begin with a session of its own. Raises MetadataError when there is no cluster."""
        driver = await connect(uri, session_timeout_s=session_timeout_s)
        try:
            await driver.instance_id()
        except BaseException:
            await driver.close()
            raise
        return cls(driver, name, settings, outside, within=within)

    def _failed(self, error: Exception) -> None:
        self._events.emit("repair ended", reason=repr(error))
        if not self.failure.done():
            self.failure.set_result(error)

    async def close(self) -> None:
        """Stop; what is under way is given up, and can be taken up by anybody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
