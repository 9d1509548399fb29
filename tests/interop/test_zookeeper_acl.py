"""A cluster of the original's programs and of ours, whose nodes in ZooKeeper belong to one identity.

The original's are who they are by a JAAS file, ours by the URI; ZooKeeper's server decides whether both are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tallystick
from support.content import payload
from support.java import SMALL, Java
from support.peers import Bookie, Driver
from support.repairers import Repairer
from support.waiting import until
from support.zookeeper import jaas
from support.zookeeper import missing as no_server
from support.zookeeper_identities import SECRET, USER, SecuredZooKeeper
from tallystick.admin.zk_acl import zk_acl
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.metadata.underreplication import Underreplication

pytestmark = pytest.mark.skipif(bool(no_server()), reason=f"no ZooKeeper server with users: {no_server()}")

SECURED = {"zkEnableSecurity": "true"}
THREADS = {"numIOThreads": 1, "numWorkerThreads": 1}
OPEN_NODE = "/ledgers/underreplication/lostBookieRecoveryDelay"
OWNER = {frozenset({f"sasl:{USER}:31"})}
OPEN = {frozenset({"world:anyone:31"})}


@dataclass
class Mixed:
    """Two bookies of the original's and two of ours, all of whom ZooKeeper knows; a client of each kind appends."""

    service: SecuredZooKeeper
    java: Java
    folder: Path
    bookies: list[Bookie] = field(default_factory=list)
    peers: list[Driver] = field(default_factory=list)
    number: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        file = jaas(self.folder / "client-jaas.conf", "Client", {USER: SECRET})
        # In its FIPS mode, the default since 3.9, the original's client speaks no DIGEST-MD5.
        return (*SMALL, f"-Djava.security.auth.login.config={file}", "-Dzookeeper.fips-mode=false")

    @property
    def root(self) -> str:
        return self.service.plain

    async def start(self) -> None:
        driver = await open_driver(self.root)
        await driver.init_cluster()
        await driver.close()
        known = self.service.uri(is_secured=False)
        self.bookies = [
            *(Bookie.original(self.java, self.root, self.folder, flags=self.flags) for _ in range(2)),
            *(Bookie.ours(known, self.folder, id=f"tally-{number}") for number in range(2)),
        ]
        for bookie in self.bookies:
            await bookie.start()

    async def client(self, **settings: object) -> Driver:
        made = await Driver.original(
            self.java, self.root, self.folder, {**THREADS, **settings}, flags=self.flags, name="client"
        )
        self.peers.append(made)
        return made

    async def secure(self, is_secured: bool) -> None:
        """Start the bookies anew, one by one, with the setting or without."""
        for bookie in self.bookies:
            file, uri = bookie.folder / "bookie.conf", self.service.uri(is_secured=is_secured)
            lines = [line for line in file.read_text().splitlines() if not line.startswith(("zkEnable", "metadataS"))]
            if bookie.kind == "java":
                lines += [f"metadataServiceUri={self.root}", f"zkEnableSecurity={str(is_secured).lower()}"]
            else:
                lines.append(f"metadataServiceUri={uri}")
            file.write_text("\n".join([*lines, ""]))
            await asyncio.to_thread(bookie.leave)
            await bookie.start()

    async def append(self, client: Driver) -> None:
        """A ledger of each client, read by the other one."""
        self.number += 1
        theirs = (await client.ask("create", e=3, qw=2, qa=2))["ledger"]
        assert (await client.ask("append", ledger=theirs, seed=self.number, count=40, size=100))["last"] == "39"
        await client.ask("close", ledger=theirs)
        expected = [payload(self.number, entry, 100) for entry in range(40)]
        async with tallystick.connect(self.service.uri()) as bk:
            async with bk.open_ledger(int(theirs)) as reader:
                assert [entry.data async for entry in reader] == expected
            async with bk.create_ledger(3, write_quorum=2, ack_quorum=2) as writer:
                for data in expected:
                    await writer.append(data)
        await client.ask("open", ledger=writer.id)
        assert (await client.ask("read", ledger=writer.id, first=0, last=39))["count"] == "40"

    async def order(self, order: str) -> None:
        now, _ = await zk_acl(self.service.uri(), order, lambda _: None)
        assert (now.differing, now.closed) == (0, 0), now.first

    def owners(self) -> set[frozenset[str]]:
        return {frozenset(one) for one in self.service.acls().values()}

    async def marks(self) -> list[int]:
        driver = await open_driver(self.service.uri())
        try:
            return [ledger async for ledger in Underreplication(driver).marks()]
        finally:
            await driver.close()

    def stop(self) -> None:
        for peer in (*self.peers, *self.bookies):
            peer.kill()


@pytest.fixture
async def mixed(java: Java, tmp_path: Path) -> AsyncIterator[Mixed]:
    service = SecuredZooKeeper.make(tmp_path, {USER: SECRET})
    service.root = "/ledgers"
    made = Mixed(service, java, tmp_path)
    try:
        await asyncio.to_thread(service.server.start)
        await made.start()
        yield made
    finally:
        made.stop()
        service.server.stop()


@pytest.mark.rule("N4")
async def test_originals_and_ours_live_through_the_switch_on_and_off(mixed: Mixed) -> None:
    client = await mixed.client()
    await mixed.append(client)
    await mixed.order("set")
    await mixed.append(client)  # nobody was started anew
    await mixed.secure(True)
    secured = await mixed.client(**SECURED)
    await mixed.append(client)
    await mixed.append(secured)
    await mixed.order("set")
    assert mixed.owners() == OWNER
    made = set(mixed.service.acls())
    await mixed.append(secured)
    new = {path: frozenset(owner) for path, owner in mixed.service.acls().items() if path not in made}
    assert len(new) >= 2 and set(new.values()) == OWNER  # a ledger of each kind
    client.kill()
    secured.kill()
    await mixed.secure(False)
    await mixed.order("clear")
    assert mixed.owners() == OPEN
    await mixed.append(await mixed.client())


@pytest.mark.rule("N4")
@pytest.mark.parametrize("kinds", ["original", "ours"])
async def test_lost_replicas_are_made_good_where_nodes_belong_to_the_identity(mixed: Mixed, kinds: str) -> None:
    """By the original's auditor and worker, or by ours."""
    await mixed.secure(True)
    client = await mixed.client(**SECURED)
    await mixed.append(client)
    await mixed.order("set")
    lost = mixed.bookies[0]
    home = mixed.folder / "repairs"
    if kinds == "original":
        for part in ("auditor", "worker"):
            started = await Repairer.start_original(
                mixed.java, part, mixed.root, home, settings=SECURED, flags=mixed.flags
            )
            mixed.peers.append(started)
    else:
        mixed.peers.append(await Repairer.start_ours(mixed.service.uri(), home))
    lost.kill()

    async def is_repaired() -> bool:
        async with tallystick.connect(mixed.service.uri()) as bk:
            ledgers = [ledger async for ledger in bk.context.driver.ledgers()]
            named = [(await bk.ledger_metadata(ledger)).fragments for ledger in ledgers]
        return all(lost.id not in fragment.bookies for fragments in named for fragment in fragments)

    await until(is_repaired, 60.0, pause=0.5)
    assert await mixed.marks() == []
    open_nodes = [path for path, owner in mixed.service.acls().items() if frozenset(owner) not in OWNER]
    # One node of the original's is everybody's whatever its settings say.
    assert open_nodes == ([OPEN_NODE] if kinds == "original" else [])
    await mixed.order("set")
    assert mixed.owners() == OWNER
