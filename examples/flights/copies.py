"""What a dead bookie had of the ledgers, and whether others have it by now: an auditor and a replicator see to that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import tallystick
from examples.flights.processes import Patience, Program

GRACE_S = 3.0  # behind the end of a dead bookie's registration; ten minutes by default
_LOOK_S = 0.5


class Repair(Program):
    """``tally autorecovery run``, in a hurry."""

    name = "auditor and replicator"

    def __init__(self, uri: str, log: Path) -> None:
        settings = {
            "metadataServiceUri": uri,
            "lostBookieRecoveryDelay": GRACE_S,
            "replicationPollInterval": 500,
            "replicationRetryInterval": 1000,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__(log, "tallystick", "autorecovery", "run", *words, stderr=log)


async def ledgers_of(uri: str, bookie: str, *, written: bool = False) -> list[int]:
    """The ledgers of which the bookie is to have entries; without ``written`` but for those that their writers still
    add: with the next one they go to another bookie."""
    named = []
    async with tallystick.connect(uri) as client:
        async for ledger in client.ledgers():
            metadata = await client.ledger_metadata(ledger)
            fragments = metadata.fragments if written or metadata.is_closed else metadata.fragments[:-1]
            if any(bookie in fragment.bookies for fragment in fragments):
                named.append(ledger)
    return named


def wait_until_copied(uri: str, bookie: str, tick: Callable[[], None]) -> None:
    """Wait until others have all that the dead bookie had."""
    patience = Patience("the repair of what the dead bookie had")
    while named := asyncio.run(ledgers_of(uri, bookie)):
        patience.tell(named)
        tick()
        time.sleep(_LOOK_S)
