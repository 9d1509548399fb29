"""All of the outside world that a server needs, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events
from tallystick.runtime.network import Network
from tallystick.runtime.rng import Random, system_random
from tallystick.runtime.worker import ThreadWorker, Workers


@dataclass(frozen=True)
class Outside:
    """Of one bookie or broker."""

    network: Network
    disk: Disk
    clock: Clock
    events: Events
    open_files: int = 1024  # that the process may have
    workers: Workers = ThreadWorker
    random: Random = field(default_factory=system_random)
