"""ZooKeeper is closed, opened and given another secret under a running cluster: no append fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tallystick
from support.peers import Bookie
from support.waiting import until
from support.zookeeper import missing
from support.zookeeper_identities import SECRET, USER, SecuredZooKeeper
from tallystick.admin.zk_acl import zk_acl
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.zk_identity import digest_id
from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
from tallystick.errors import MetadataRefused

pytestmark = [
    pytest.mark.zookeeper,
    pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server: {missing()}"),
]

BOOKIES = 4
NEWER = "a newer secret"
REPAIR = {
    "autoRecoveryDaemonEnabled": "true",  # an auditor, and who repairs
    "lostBookieRecoveryDelay": 60,
    "replicationPollInterval": 200,
}
ROLLING = StreamClientSettings(stream=StreamSettings(max_entries_per_ledger=20))  # the metadata is written all the time


@dataclass
class Load:
    """A client that appends to a ledger and to a stream until it is stopped."""

    uri: str
    name: str
    appended: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def start(self) -> Load:
        self.task = asyncio.create_task(self._run())
        await self.more()
        return self

    async def more(self, count: int = 50) -> None:
        """Wait until so many more were appended."""
        assert self.task is not None
        least = self.appended + count
        await until(lambda: self.appended >= least or self.task is None or self.task.done(), 60.0)
        if self.task.done():
            await self.task

    async def stop(self) -> None:
        """Raises what ended it."""
        assert self.task is not None
        self.stopped.set()
        await self.task

    async def _run(self) -> None:
        async with tallystick.connect(self.uri, streams=ROLLING) as bk:
            stream = await bk.open_stream(self.name)
            async with bk.create_ledger(3, write_quorum=3, ack_quorum=2) as writer:
                while not self.stopped.is_set():
                    data = b"%d" % self.appended
                    await asyncio.gather(writer.append(data), stream.append(data))
                    self.appended += 1
            async with bk.open_ledger(writer.id) as reader:
                kept = [entry.data async for entry in reader]
            assert kept == [b"%d" % number for number in range(self.appended)]


@dataclass
class Cluster:
    service: SecuredZooKeeper
    folder: Path
    bookies: list[Bookie] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)

    async def start(self, uri: str) -> None:
        driver = await open_driver(uri)
        await driver.init_cluster()
        await driver.close()
        self.bookies = [Bookie.ours(uri, self.folder, id=f"b{number}", settings=REPAIR) for number in range(BOOKIES)]
        await asyncio.gather(*(bookie.start() for bookie in self.bookies))

    async def load(self, uri: str) -> Load:
        self.loads.append(await Load(uri, f"a/b/persistent/s{len(self.loads)}").start())
        return self.loads[-1]

    async def programs(self, uri: str) -> None:
        """Start all anew with another URI: a client beside the one before, and bookies one by one."""
        before = self.loads[-1]
        load = await self.load(uri)
        for bookie in self.bookies:
            file = bookie.folder / "bookie.conf"
            lines = [line for line in file.read_text().splitlines() if not line.startswith("metadataServiceUri")]
            file.write_text("\n".join([*lines, f"metadataServiceUri={uri}", ""]))
            await asyncio.to_thread(bookie.leave)
            await bookie.start()
            await asyncio.gather(before.more(20), load.more(20))
        await before.stop()

    async def order(self, uri: str, order: str) -> None:
        """A walk leaves nothing, but what is made in front of it while it runs."""
        now, done = await zk_acl(uri, order, lambda _: None)
        assert done is not None and done.changed > 0 and now.closed == 0
        await asyncio.gather(*(load.more(20) for load in self.loads if not load.stopped.is_set()))

    def owners(self) -> set[frozenset[str]]:
        return {frozenset(one) for one in self.service.acls().values()}

    async def stop(self) -> None:
        for load in self.loads:
            load.stopped.set()
            if load.task is not None:
                await asyncio.wait([load.task])
        for bookie in self.bookies:
            bookie.kill()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    service = SecuredZooKeeper.make(tmp_path, {USER: SECRET})
    made = Cluster(service, tmp_path)
    try:
        await asyncio.to_thread(service.server.start)
        yield made
    finally:
        await made.stop()
        service.server.stop()


@pytest.mark.rule("N4")
async def test_zookeeper_is_closed_and_opened_under_load(cluster: Cluster) -> None:
    service = cluster.service
    plain, known, secured = service.plain, service.uri(is_secured=False), service.uri()
    await cluster.start(plain)
    await cluster.load(plain)
    await cluster.programs(known)
    await cluster.order(secured, "set")
    with pytest.raises(MetadataRefused):
        await Load(plain, "a/b/persistent/nobody").start()
    await cluster.programs(secured)
    await cluster.order(secured, "set")
    assert cluster.owners() == {frozenset({f"sasl:{USER}:31"})}
    # What bookies, the auditor, writers and owners of streams made is among them.
    paths = " ".join(service.acls())
    for part in (
        "/available/b0",
        "/cookies/b3",
        "/underreplication/",
        "/managed-ledgers/",
        "/tallystick/going/",
        "/tallystick/owners/",
    ):
        assert part in paths, part
    await cluster.programs(known)
    await cluster.order(known, "clear")
    await cluster.programs(plain)
    await cluster.loads[-1].stop()
    assert cluster.owners() == {frozenset({"world:anyone:31"})}


@pytest.mark.rule("N4")
async def test_a_secret_of_digest_is_changed_under_load(cluster: Cluster) -> None:
    service = cluster.service
    old, both, new = (
        service.uri(*secrets, file=f"secret-{number}", schemes="digest")
        for number, secrets in enumerate([(SECRET,), (NEWER, SECRET), (NEWER,)])
    )
    ids = {secret: f"digest:{digest_id(USER, secret)}:31" for secret in (SECRET, NEWER)}
    await cluster.start(old)
    await cluster.load(old)
    assert cluster.owners() == {frozenset({ids[SECRET]})}
    await cluster.programs(both)
    await cluster.order(both, "rotate")
    assert cluster.owners() == {frozenset(ids.values())}
    await cluster.programs(new)
    await cluster.order(new, "set")
    await cluster.loads[-1].stop()
    assert cluster.owners() == {frozenset({ids[NEWER]})}
    with pytest.raises(MetadataRefused):
        await Load(old, "a/b/persistent/nobody").start()
