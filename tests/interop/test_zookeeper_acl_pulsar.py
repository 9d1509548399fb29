"""A Pulsar broker on our bookies while ZooKeeper is closed and opened: it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.java import Java
from support.peers import Bookie
from support.zookeeper import jaas, missing
from support.zookeeper_identities import SECRET, USER, SecuredZooKeeper
from tallystick.admin.zk_acl import zk_acl
from tallystick.bookkeeper.metadata.open import open_driver
from tallystick.bookkeeper.wire.stream_values import Position

pytest.importorskip("pulsar")
from support.pulsar import FLAGS, PulsarBroker
from support.pulsar_topics import Message, PulsarTopics

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no ZooKeeper server with users: {missing()}")

STREAM = "public/default/persistent/closed"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[SecuredZooKeeper]:
    made = SecuredZooKeeper.make(tmp_path, {USER: SECRET})
    made.root = "/topics/ledgers"
    try:
        await asyncio.to_thread(made.server.start)
        yield made
    finally:
        made.server.stop()


@pytest.mark.rule("N4")
async def test_a_pulsar_broker_lives_through_the_switch_on_and_off(
    service: SecuredZooKeeper, java: Java, pulsar_java: Java, tmp_path: Path
) -> None:
    driver = await open_driver(service.plain)
    await driver.init_cluster()
    await driver.close()
    file = jaas(tmp_path / "broker-jaas.conf", "Client", {USER: SECRET})
    flags = (*FLAGS, f"-Djava.security.auth.login.config={file}", "-Dzookeeper.fips-mode=false")
    changes = {"managedLedgerMaxEntriesPerLedger": 5, "managedLedgerMinLedgerRolloverTimeMinutes": 0}
    broker = await PulsarBroker.prepare(
        pulsar_java, service.plain, tmp_path / "pulsar", v2=True, changes=changes, flags=flags
    )
    bookies = [Bookie.ours(service.uri(), tmp_path, id=f"b{number}") for number in range(2)]
    topics = PulsarTopics(service.plain, broker, bookies)
    sent: list[Message] = []

    async def produce() -> None:
        """Over several ledgers, of which the broker makes lists anew."""
        batch = [Message(Position(-1, -1), b"%d" % (len(sent) + each)) for each in range(12)]
        sent.extend(await topics.produce(STREAM, batch))

    async def order(order: str) -> None:
        now, done = await zk_acl(service.uri(), order, lambda _: None)
        assert done is not None and done.changed > 0 and (now.differing, now.closed) == (0, 0), now.first

    try:
        for peer in (*bookies, broker):
            await peer.start()
        await topics.subscribe(STREAM, "kept", 0)
        await produce()
        await order("set")
        await produce()
        await topics.unload(STREAM)
        await produce()
        made = {path for path, owner in service.acls().items() if owner == {"world:anyone:31"}}
        assert any(path.startswith("/topics/ledgers/00/") for path in made)  # a broker knows no such setting
        await order("set")
        await produce()
        await order("clear")
        await produce()
        kept = await topics.subscribe(STREAM, "kept", len(sent))
        assert [message.data for message in kept] == [b"%d" % number for number in range(60)]
    finally:
        for peer in (broker, *bookies):
            peer.kill()
