"""The processes of a simulated cluster: whole bookies, each on a host with a disk of its own, and whole clients."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from tallystick.bookkeeper.bookie.bookie import Bookie, start_bookie
from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.cookies import journal_of, ledgers_of
from tallystick.bookkeeper.bookie.places import StorageFolders
from tallystick.bookkeeper.bookie.storage import Storage
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.repair.fill import fill
from tallystick.bookkeeper.repair.mend import mend
from tallystick.bookkeeper.repair.surplus import shed
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import CorruptRecord, DiskFull, MetadataError
from tallystick.runtime.events import Event
from tallystick.sim.cluster_judge import ClusterJudge
from tallystick.sim.cluster_metadata import SESSION_S, MetadataService
from tallystick.sim.hosts import ClientHost, Host, World
from tallystick.sim.storage_model import SETTINGS
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.process import Process, Timers
from tallystick.sim.virtual.trace import Trace

PORT = 3181
LEDGER_DIR = "/bookie/ledgers"
CLIENT = ClientSettings(
    add_timeout_s=1.0,
    read_timeout_s=1.0,
    connect_timeout_s=1.0,
    max_inflight_bytes=8 * 1024,
    read_window_bytes=4 * 1024,
    speculative_read_s=0.3,
    quarantine_s=2.0,
    no_quorum_s=6.0,
    absent_bookie_s=2.0,
)


class BookieMetadata(Protocol):
    """Where bookies register."""

    name: str

    def connect(self, process: Process) -> MetadataDriver: ...


class BookieJudge(Protocol):
    """What is told of bookies."""

    def fail(self, promise: str, what: str) -> object: ...

    def damaged(self, bookie: BookieId, *, forgets: bool) -> None:
        """A bookie lost what it had."""
        ...

    def collected(self, bookie: BookieId, storage: Storage) -> None:
        """A bookie has deleted ledgers."""
        ...


class BookieWorld(World):
    """With the metadata, and who judges bookies."""

    def __init__(
        self,
        loop: Timers,
        *,
        rng: random.Random,
        trace: Trace,
        fabric: Fabric,
        sync_s: float,
        service: BookieMetadata,
        judge: BookieJudge,
    ) -> None:
        super().__init__(loop, rng, trace, fabric, sync_s)
        self.service, self.judge = service, judge


class ClusterWorld(BookieWorld):
    """That of whole clusters."""

    service: MetadataService
    judge: ClusterJudge


class BookieHost(Host[BookieWorld]):
    """A machine on which one bookie runs."""

    def __init__(self, world: BookieWorld, number: int, collect_s: float, address: str | None = None) -> None:
        super().__init__(world, f"b{number}", address or f"10.0.0.{number + 1}")
        self._collect_s = collect_s
        self.bookie: Bookie | None = None  # that answers
        self.is_rotten = False  # a bit of its disk has flipped
        self.is_down = False  # it gets another disk
        self.rejoins = False  # with its next start: it has another disk
        self.surplus_wait_s = 0.0  # settable, before its first start; and who hears what it dropped then
        self.shed: Callable[[BookieId, Sequence[LedgerId]], None] = lambda bookie, ledgers: None

    @property
    def _settings(self) -> BookieSettings:
        return BookieSettings(
            f"memory://{self._world.service.name}",
            ("/bookie/journal",),
            (LEDGER_DIR,),
            port=PORT,
            bookie_id=self.id,
            advertised_host=self.address,
            session_timeout_s=SESSION_S,
            gc_wait_s=self._collect_s,
            surplus_wait_s=self.surplus_wait_s,
        )

    def boot(self) -> None:
        if not self.is_down:
            super().boot()

    @property
    def answers(self) -> bool:
        return self.bookie is not None

    async def _run(self, process: Process) -> None:
        async def connect(uri: str, *, session_timeout_s: float) -> MetadataDriver:
            return self._world.service.connect(process)

        outside = self._outside(process, self._on_event)
        try:
            starting = start_bookie(
                self._settings, outside, SETTINGS, connect, fill=fill, mend=mend, shed=shed, rejoin=self.rejoins
            )
            bookie = self.bookie = await starting
            self.rejoins = False
        except Exception as error:
            self._allow(process, error)
            return
        self._allow(process, await bookie.failure)

    async def _stop(self) -> None:
        bookie, self.bookie = self.bookie, None
        assert bookie is not None, "only one that answers is asked to stop"
        await bookie.stop()

    def _forget(self) -> None:
        super()._forget()
        self.bookie = None

    def durable(self) -> Storage | None:
        """Returns what a start after a loss of power now would find. Returns None of a disk that has rotted."""
        with contextlib.suppress(CorruptRecord) if self.is_rotten else contextlib.nullcontext():
            settings = self._settings
            folders = StorageFolders(
                tuple(map(journal_of, settings.journal_dirs)), tuple(map(ledgers_of, settings.ledger_dirs))
            )
            medium, rng = self.disk.medium(), random.Random(0)
            return Storage.open(medium, folders, SETTINGS, clock=self._world.clock, random=rng)
        return None

    def _allow(self, process: Process, error: Exception) -> None:
        """A bookie may end for want of its metadata or of space, or by its disk, and for nothing else here."""
        self._world.trace.note(process.name, "ends", repr(error))
        if self.is_rotten and isinstance(error, CorruptRecord):
            self.retired = True
            self._world.judge.damaged(self.id, forgets=False)  # what came after the bit had flipped is lost with it
        elif not isinstance(error, MetadataError | DiskFull) and not self.ends_by_its_disk(error):
            self._world.judge.fail("P9", f"{self.id} ended by itself: {error!r}")
        self._exits(process)

    def _on_event(self, event: Event) -> None:
        if event.kind in ("ledgers deleted", "ledgers replaced") and self.bookie is not None:
            self._world.judge.collected(self.id, self.bookie.storage)
        if event.kind == "surplus copies dropped":
            self.shed(self.id, event.fields["ledgers"])


class LedgerClientHost(ClientHost[ClusterWorld, BookKeeper]):
    """A machine on which one program uses the cluster, by this wire (``ClientSettings.wire``)."""

    def __init__(self, world: ClusterWorld, number: int, name: str, wire: str) -> None:
        super().__init__(world, number, name)
        self.wire = wire
        world.trace.note(name, "speaks", wire)

    def _client(self) -> BookKeeper:
        driver = self._world.service.connect(self.process)
        return BookKeeper(driver, self.outside(self._world.judge.on_event), replace(CLIENT, wire=self.wire))
