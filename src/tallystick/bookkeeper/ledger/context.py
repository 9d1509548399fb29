"""What all handles of one client share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tallystick.bookkeeper.ledger.connection import BookieClient
from tallystick.bookkeeper.ledger.settings import ClientSettings
from tallystick.bookkeeper.metadata.driver import MetadataDriver
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.rng import Random


@dataclass(frozen=True)
class LedgerContext:
    """The parts of a client that its handles use."""

    driver: MetadataDriver
    bookies: BookieClient
    clock: Clock
    random: Random
    settings: ClientSettings
    events: Events
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)  # which they work on
