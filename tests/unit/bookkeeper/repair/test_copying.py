"""How many entries are copied together."""

from __future__ import annotations

from support.repaired import RepairedCluster
from tallystick.bookkeeper.repair.copying import Copying
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.runtime.pace import Pace


async def test_so_many_as_fit_if_all_are_as_long_as_the_longest(cluster: RepairedCluster) -> None:
    client, settings = cluster.client(), RepairSettings(batch_entries=20, batch_bytes=50_000)
    async with client.create_ledger(3, write_quorum=3, ack_quorum=3) as writer:
        for number in range(100):
            await writer.append(bytes(10_000 if number == 50 else 100))
    metadata, context = await cluster.metadata(writer.id), client.context
    copying = Copying(context.bookies, writer.id, metadata, settings, Pace(context.clock, 0.0))
    counts, done = list[int](), list[int]()
    async for entries in copying.batches([range(100)]):
        read = await copying.read(entries, lambda entry: metadata.ensemble)
        counts.append(len(entries))
        done += read.frames
    assert done == list(range(100))
    assert counts == [4, 20, 20, 20, *[4] * 9]
