"""One simulated life of a cluster whose metadata is lost, and put back from a backup.

As lives of ``repairs``: whole clients, bookies, auditors and replicators. At some moment the metadata is copied, and
all goes on: ledgers are made, closed and deleted, ensembles change, copies move. Then everything stops, as the guide
says, and the code of production puts the copy back (``admin/backup.py``). Bookies start, an operator reconciles or does
not, new ledgers are written, old ones recovered and read, and a bookie is lost, which is repaired by the older
ensembles.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile

from tallystick.admin.backup import Restoration, backup, restore
from tallystick.admin.reconcile import Confirmation, Reconciliation, reconcile
from tallystick.bookkeeper.bookie.collection_orders import Order, OrderFile
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import BookieId, LedgerId
from tallystick.errors import NoSuchLedger, TallyError, UsageError
from tallystick.runtime.disk import Disk
from tallystick.sim import restores_plan
from tallystick.sim.cluster import CALM_S, MAX_TURNS
from tallystick.sim.cluster_clients import AGAIN_S, FUTILE, Shared, must_be_deleted
from tallystick.sim.cluster_faults import BookPlan
from tallystick.sim.cluster_hosts import LEDGER_DIR
from tallystick.sim.cluster_metadata import MetadataFaults, MetadataService
from tallystick.sim.disk import SimDisk
from tallystick.sim.life import live
from tallystick.sim.metadata_file import FileTree
from tallystick.sim.repairs import ABSENT_S, REPAIR_S, REPAIRERS, RepairLife
from tallystick.sim.restores_judge import RestoreJudge
from tallystick.sim.restores_plan import RestorePlan
from tallystick.sim.series import Outcome
from tallystick.sim.virtual.loop import VirtualClock, VirtualLoop
from tallystick.sim.virtual.network import Fabric
from tallystick.sim.virtual.trace import Trace

STOPPED_S = 6.0  # in which requests on their way arrive, and sessions end
HELD_S = 8.0  # in which a bookie collects twice
MENDED_S = 40.0  # in which older ensembles get what some of them have
RECONCILED_S = 60.0  # in which each bookie says what it has
OPERATOR = "operator"
LOOKS = 5


def run(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One schedule."""
    rng = random.Random(seed)
    plan, what = restores_plan.draw(rng)
    loop = VirtualLoop(max_seconds=plan.storm_s + 3 * CALM_S + 2 * ABSENT_S + 6 * REPAIR_S, max_turns=2 * MAX_TURNS)
    trace = Trace(loop.time, keep=keep_trace)
    trace.note(plan)
    trace.note(what)
    judge = RestoreJudge(seed, trace)
    judge.stop = loop.stop
    with tempfile.TemporaryDirectory(prefix="tally-sim-") as folder:
        life = RestoreLife(seed, rng=rng, plan=plan, loop=loop, trace=trace, judge=judge)
        life.what, life.folder = what, folder
        return live(seed, life.live(), loop, trace, judge, "P9")


async def read_again(shared: Shared, client: BookKeeper) -> None:
    """Take over a ledger that was in the backup, or is new, and read all of it that is there."""
    book, judge = await shared.book, shared.judge
    assert isinstance(judge, RestoreJudge)
    while True:
        try:
            reader = await client.open_ledger(book.id, password=shared.plan.password, recover=True)
            break
        except NoSuchLedger:
            return must_be_deleted(shared, book)
        except FUTILE:
            await asyncio.sleep(AGAIN_S)
    judge.reported(book, reader.last_entry, reader.length)
    first, last = 0, reader.last_entry
    while first <= reader.last_entry:
        try:
            async for entry in reader.read(first, last):
                judge.read(book, entry)
                first = entry.id + 1
        except TallyError as error:
            if last > first:  # one of these cannot be read: one by one
                last = first
            elif isinstance(error, FUTILE) and not judge.may_be_gone(book, first):
                await asyncio.sleep(AGAIN_S)
            else:
                judge.unread(book, first, error)
                first = last = first + 1
        else:
            last = first if last < reader.last_entry else last


class RestoreLife(RepairLife):
    """One life. Set what becomes of its metadata, and the folder of its files; then ``live`` it once."""

    what: RestorePlan
    folder: str
    _judge: RestoreJudge
    _read_at_the_end = staticmethod(read_again)

    def _metadata(self, fabric: Fabric) -> MetadataService:
        self._tree = FileTree(random.Random(self._random.getrandbits(64)), VirtualClock(self._loop))
        return MetadataService(fabric, self._random, self._name, MetadataFaults(), self._judge, self._tree)

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    async def _storm(self) -> None:
        saving = asyncio.create_task(self._save())
        await super()._storm()
        await saving

    async def _save(self) -> None:
        await asyncio.sleep(self.what.saved_at)
        self._tree.write_file(self._file("running.db"))
        backup(f"sqlite://{self._file('running.db')}", self._file("backup.db"))
        self._judge.saved()

    async def _calm(self) -> None:
        if self.what.settles:
            await super()._calm()
        else:
            await self._await_bookies()
        await self._stop_all()
        self._put_back()
        await self._start_all()
        self._books = [shared for shared in self._books if _is_back(shared)]
        for shared in self._books:
            self._start("heir", shared, read_again)
        new_book = restores_plan.new_book(self._plan.books[0])
        await self._write_new(new_book)
        operating = asyncio.create_task(self._operate())
        if self.what.bounces:
            host = self._random.choice(self._bookies)
            host.kill()
            host.boot()
        await operating
        await self._write_new(new_book)
        await self._end_programs()
        await self._mended()
        if self.what.loses_one:
            await self._lose_one()
            if self._judge.given_up:  # the bookie that was lost may have had its order in hand
                await self._give_up()
        await asyncio.sleep(HELD_S)
        self._judge.look_at_copies()

    async def _stop_all(self) -> None:
        """Stop everything, as who restores metadata must."""
        for client in self._clients:
            client.kill()
        for host in self._bookies:
            host.retired = True
            {"kill": host.kill, "power loss": host.lose_power, "stop": host.stop}[self.what.ends]()
        await asyncio.sleep(STOPPED_S)
        for host in self._bookies:
            host.kill()
        self._programs, self._undisturbed, self._followed = [], [], []

    def _put_back(self) -> None:
        """Restore the backup by the code of production."""
        file = self._file("metadata.db")
        if not self.what.is_gone:
            self._tree.write_file(file)
        plan = self._restore(do=False)
        above = None
        if plan.unknown:
            with contextlib.suppress(UsageError):
                self._restore(do=True)
                self._judge.fail("M1", f"nobody knows what {list(plan.unknown)} have, and the metadata is restored")
            above = 1 + max(self._judge.books, default=0)
        done = self._restore(do=True, next_ledger=above)
        self._tree.read_file(file)
        self._judge.put_back(done)

    def _restore(self, *, do: bool, next_ledger: LedgerId | None = None) -> Restoration:
        disks: dict[BookieId, Disk] = {host.id: host.disk for host in self._bookies}
        if self.what.has_unreadable:
            disks[self._bookies[0].id] = SimDisk(random.Random(0))  # another machine's: there are no such folders
        uri, file = f"sqlite://{self._file('metadata.db')}", self._file("backup.db")
        return restore(uri, file, do=do, next_ledger=next_ledger, disk_of=disks.__getitem__)

    async def _start_all(self) -> None:
        waiting = list(self._bookies)
        for host in waiting:
            host.retired = False
            host.boot()
        while waiting:
            for host in [host for host in waiting if host.bookie is not None]:
                assert host.bookie is not None
                self._judge.came_back(host.id, host.bookie.storage)
                waiting.remove(host)
            await asyncio.sleep(0.02)
        self._judge.all_came_back()
        self._repairers = [self._repairer(f"repairer{number} again") for number in range(REPAIRERS)]

    async def _write_new(self, plan: BookPlan) -> None:
        shared = Shared(plan, self._judge, self._world.chance(), None)
        self._books.append(shared)
        await self._begin(shared)

    async def _operate(self) -> None:
        """Look what the metadata lacks, and perhaps let collections go on."""
        await asyncio.sleep(self.what.operator_at)
        found = await self._reconciled()
        self._judge.told_of(found)
        if not self.what.operator:
            return
        self._judge.confirmed()
        await self._confirm(found)
        if self.what.operator == "gives up":
            await asyncio.sleep(HELD_S)
            self._judge.look_at_copies()
            await self._give_up()

    async def _confirm(self, found: Reconciliation) -> None:
        """Confirm what was shown; a bookie that came back since may have changed the list: look again then."""
        for _ in range(LOOKS):
            try:
                await reconcile(self._uri, confirmation=Confirmation(OPERATOR, found.code))
            except UsageError:
                found = await self._reconciled()
                self._judge.told_of(found)
            else:
                return
        self._judge.fail("M4", "the list is another whenever it is confirmed")

    async def _give_up(self) -> None:
        """Tell every bookie to delete what is newer than the metadata."""
        await self._await_bookies()
        for host in self._bookies:
            self._judge.given_up[host.id] = None
            OrderFile(host.disk, LEDGER_DIR).place(Order.NOW, self._world.clock.wall_ms() // 1000)

    @property
    def _uri(self) -> str:
        return f"memory://{self._name}"

    async def _reconciled(self) -> Reconciliation:
        """Wait until all bookies have said what they have; before that nobody can confirm."""
        deadline = self._loop.time() + RECONCILED_S
        while True:
            found = await reconcile(self._uri)
            if found is None:
                self._judge.fail("M2", "nobody can tell that the metadata was restored")
                raise AssertionError
            if not found.unheard:
                return found
            with contextlib.suppress(UsageError):
                await reconcile(self._uri, confirmation=Confirmation(OPERATOR, found.code))
                self._judge.fail("M4", f"{found.unheard} have not said what they have, and it is confirmed")
            if self._loop.time() > deadline:
                self._judge.fail("M4", f"{found.unheard} do not say what they have")
            await asyncio.sleep(0.2)

    async def _mended(self) -> None:
        deadline = self._loop.time() + MENDED_S
        while lacking := self._judge.lacking():
            if self._loop.time() > deadline:
                self._judge.fail("M8", f"nobody copies what others have: {lacking[:5]}")
            await asyncio.sleep(0.5)


def _is_back(shared: Shared) -> bool:
    """Return whether a ledger is in the metadata."""
    return shared.book.done() and not shared.book.cancelled() and not shared.book.result().deleted
