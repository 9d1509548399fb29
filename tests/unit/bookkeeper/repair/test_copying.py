"""How many entries are copied together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.repaired import RepairedCluster
from tallystick.bookkeeper.repair.copying import Copying
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.errors import BookieUnavailable
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


@pytest.mark.parametrize("has_lists", [True, False])
@pytest.mark.parametrize("lost", [[], [0], [1], [9], range(10)])
async def test_who_lacks_any_of_what_it_must_have_is_told(
    cluster: RepairedCluster, has_lists: bool, lost: Sequence[int]
) -> None:
    """A look at many is in several parts, and of what is lost as a whole a bookie knows no ledger."""
    ledger = await cluster.written(10, ensemble=3, write_quorum=3)
    metadata, context = await cluster.metadata(ledger), cluster.client().context
    name, settings = metadata.ensemble[0], RepairSettings(batch_entries=4)
    copying = Copying(context.bookies, ledger, metadata, settings, Pace(context.clock, 0.0))
    cluster.bookies[name].speaks_v3 = has_lists
    for entry in lost:
        del cluster.bookies[name].entries[ledger, entry]
    if lost:
        with pytest.raises(BookieUnavailable, match="any more"):
            await copying.require(name, lambda: (range(3), range(3, 9), range(9, 10)))
    else:
        await copying.require(name, lambda: (range(3), range(3, 9), range(9, 10)))
    await copying.require(name, lambda: ([],))
