"""All that a broker has for access control, from its file to the check of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from tallystick.rocketmq.broker.access.file import AccessFile
from tallystick.rocketmq.broker.access.gate import ACCESS, AccessGate
from tallystick.rocketmq.broker.access.metrics import AccessCollector, AccessCounts
from tallystick.rocketmq.broker.access.pages import AccessPages
from tallystick.rocketmq.broker.access.requests import AccessRequests
from tallystick.rocketmq.broker.access.table import AccessTable
from tallystick.rocketmq.broker.config_files import ConfigFiles
from tallystick.rocketmq.broker.pages import PagedTable
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.saver import Saver
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.remoting.dispatch import Gate, open_gate
from tallystick.rocketmq.wire.access import AuthenticationInfo, PeerRow
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.runtime.outside import Outside
from tallystick.runtime.tasks import watch
from tallystick.runtime.worker import Worker


class BrokerAccess:
    """The users of one broker; ``close`` it behind the savers. ``saver`` saves them, ``gate`` checks each request.

    Where ``authenticationEnabled`` is false the file is not read, every request passes, and those about users are
    refused. Raises CorruptRecord for a damaged file.
    """

    def __init__(self, files: ConfigFiles, *, settings: BrokerSettings, standing: Standing, outside: Outside) -> None:
        access, disk, events = settings.access, outside.disk, outside.events
        self.table: AccessTable | None = None  # None where nobody is asked for a key
        self.gate: Gate = open_gate
        self._access_gate: AccessGate | None = None
        self._outside = outside
        self._task: asyncio.Task[None] | None = None
        self._worker: Worker | None = None
        self.file = file = AccessFile(files, disk, standing, events, is_on=access.authenticates)
        self.saver = Saver(file, files, outside.clock, events, outside.workers("tally-users"))
        if access.authenticates:
            self.table = file.table
            file.ensure(*(each for each in (access.first_user, access.inner_credentials) if each is not None))
            self._access_gate = self.gate = AccessGate(file.table, settings.cluster, access, outside.clock, events)
        self._inner_credentials = access.inner_credentials
        self._lets_unsigned_pass, self._tls = access.anonymous, settings.tls.listens
        self.requests = AccessRequests(self.table, standing, events, self._info)

    def paged(self, tables: Mapping[str, PagedTable]) -> Mapping[str, PagedTable]:
        """Returns the tables that slaves copy by pages: these, and the users where there are some."""
        return tables if self.table is None else {**tables, ACCESS: AccessPages(self.table)}

    @property
    def collector(self) -> AccessCollector:
        """Returns what a scrape shows of the requests that were checked."""
        return AccessCollector(self._access_gate.counts if self._access_gate is not None else AccessCounts())

    def when_revoked(self, revoked: Callable[[], None]) -> None:
        """``revoked`` is called when somebody may do less than before."""
        if self.table is not None:
            self.table.revoked = revoked

    def _info(self) -> AuthenticationInfo:
        gate = self._access_gate
        rows = gate.peers.rows() if gate is not None else []
        peers = tuple(msgspec.convert({name.replace(" s", "S"): row[name] for name in row}, PeerRow) for row in rows)
        return AuthenticationInfo(gate is not None, gate is not None and not self._lets_unsigned_pass, self._tls, peers)

    def credentials(self) -> Credentials | None:
        """Returns who signs what this broker asks name servers and its master."""
        return self._inner_credentials

    def start(self, failed: Callable[[Exception], None]) -> None:
        """Look at the file from now on. ``failed`` gets what ends that."""
        if self.table is not None:
            self._worker = self._outside.workers("tally-access")
            self._task = asyncio.get_running_loop().create_task(self.file.watch(self._worker))
            watch([self._task], failed)

    async def close(self) -> None:
        """End the looks at the file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._worker is not None:
            self._worker.close()
