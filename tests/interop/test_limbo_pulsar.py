"""A Pulsar broker beside a bookie of ours that came back without its disk: nothing is lost, and all goes on (Q15)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator

import pytest

import tallystick
from support.clusters import Cluster
from support.java import Java
from support.pulsar import PulsarBroker

pytest.importorskip("pulsar")

from support.pulsar_topics import DEFAULTS, KEPT, PulsarTopics, in_order, messages

# A bookie that failed five requests in a minute is else avoided for half an hour, so new ledgers would not come to it.
SETTINGS = {**DEFAULTS, "bookkeeperClientHealthCheckEnabled": "false"}
MOST_LEDGERS = 12  # each is on two of three bookies: that one of them is in none is one case of half a million


@pytest.fixture
def beside(clusters: Callable[[str], Cluster], pulsar_java: Java) -> Iterator[tuple[Cluster, PulsarTopics]]:
    """It speaks version 2, as it does by default, to three bookies of ours."""
    cluster = clusters("tally")

    async def start() -> PulsarBroker:
        folder = cluster.folder / "pulsar"
        broker = await PulsarBroker.prepare(pulsar_java, cluster.uri, folder, v2=True, changes=SETTINGS)
        await broker.start()
        return broker

    broker = asyncio.run(start())
    yield cluster, PulsarTopics(cluster.uri, broker, cluster.bookies)
    broker.kill()


@pytest.mark.rule("Q11", "Q15", "Q18")
@pytest.mark.timeout(400)
async def test_q15_a_pulsar_broker_and_a_java_client_lose_nothing_beside_a_bookie_in_limbo(
    beside: tuple[Cluster, PulsarTopics],
) -> None:
    cluster, topics = beside
    stream, writer = f"{KEPT}/limbo", cluster.clients["tally"]
    async with tallystick.connect(topics.uri) as bk:
        await bk.create_for_pulsar(stream)
    held = (await writer.ask("create", e=3, qw=3, qa=2))["ledger"]  # open, so it stays in limbo
    for count in (19, 1):  # the last one says, by version 2 alone, that those before it are confirmed
        await writer.ask("append", ledger=held, count=count, size=100, seed=71)
    sent = await topics.produce(stream, messages(250), batching_enabled=False)

    victim = cluster.bookies[0]
    victim.kill()
    for name in ("journal", "ledgers"):
        shutil.rmtree(victim.folder / name)
    sending = asyncio.create_task(topics.produce(stream, messages(250, first=250), batching_enabled=False))
    victim.command.append("--rejoin")
    try:
        await cluster.restart(victim)
    finally:
        victim.command.remove("--rejoin")
    sent += await sending
    assert await victim.read_code(int(held), 0) == 101, "it is in limbo"

    java = await cluster.shared("java")  # by version 2, too
    for _ in range(2):
        assert await topics.consume(stream, len(sent)) == in_order(sent)
        sent += await topics.produce(stream, messages(150, first=len(sent)), batching_enabled=False)
        await topics.unload(stream)  # the broker recovers or closes its last ledger, and reads it anew
        opened = await java.ask("open", ledger=held)
        assert opened["closed"] == "no" and int(opened["last"]) >= 18
    assert await topics.consume(stream, len(sent)) == in_order(sent)
    assert await victim.read_code(int(held), 0) == 101, "and still is"
    for _ in range(MOST_LEDGERS):
        ledgers = {message.position.ledger for message in sent[500:]}
        metadata = [await writer.ask("metadata", ledger=ledger) for ledger in sorted(ledgers)]
        if any(victim.id in each["fragments"] for each in metadata):
            return
        sent += await topics.produce(stream, messages(1, first=len(sent)), batching_enabled=False)
        await topics.unload(stream)
    pytest.fail(f"none of {len(ledgers)} new ledgers came to it")
