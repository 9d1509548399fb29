"""A replicator closes the open ledger of a simulated stream, as one of its bookies is lost; the owner goes on (Q19)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.bookkeeper.repair.auditor import Auditor
from tallystick.bookkeeper.repair.replicator import Replicator
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.bookkeeper.stream.client import BookKeeper
from tallystick.bookkeeper.wire.values import LedgerId
from tallystick.errors import NoSuchLedger
from tallystick.sim.cluster_hosts import BookieHost
from tallystick.sim.streams_hosts import StreamClientHost
from tallystick.sim.streams_judge import StreamsJudge

REPAIR = RepairSettings(grace_s=1.0, open_grace_s=2.0, poll_s=0.5, retry_s=0.5, max_retry_s=2.0, batch_entries=4)
CLOSED_S = 60.0  # in which the ledger is closed


async def close_by_repair(
    judge: StreamsJudge,
    operator: MetadataDriver,
    bookies: Sequence[BookieHost],
    client: Callable[[str], StreamClientHost],
    rng: random.Random,
) -> bool:
    """Lose a bookie of the stream's newest ledger until that is closed, by a replicator or, as it was old, by its
    owner. Returns False, and nothing is done, if no bookie can take a copy, or none can be done without."""
    info = judge.list.info
    assert info is not None and info.ledgers, "somebody owns the stream"
    ledger = info.ledgers[-1].ledger
    metadata = (await operator.read_ledger(ledger)).value
    ensemble = metadata.ensemble
    if len(bookies) <= len(ensemble) or metadata.ack_quorum < 2:
        return False
    host = rng.choice([host for host in bookies if host.id in ensemble])
    repairer = client("repairer")
    working = repairer.run(_repair)
    host.retired = True
    host.kill()
    deadline = asyncio.get_running_loop().time() + CLOSED_S
    while await _is_open(operator, ledger):
        if asyncio.get_running_loop().time() > deadline or working.done():
            judge.fail("S9", f"no replicator closes ledger {ledger}, which lost {host.id}: {working}")
        await asyncio.sleep(0.1)
    repairer.kill()
    host.retired = False
    host.boot()
    return True


async def _is_open(operator: MetadataDriver, ledger: LedgerId) -> bool:
    try:
        return not (await operator.read_ledger(ledger)).value.is_closed
    except NoSuchLedger:  # it was closed, and then trimmed
        return False


async def _repair(client: BookKeeper) -> None:
    context = client.context
    auditor = Auditor(context.driver, "repairer", REPAIR, context.clock, context.events)
    await asyncio.gather(auditor.run(), Replicator(client, "repairer", REPAIR).run())
