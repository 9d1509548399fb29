"""All of the outside world that a server or a client needs, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.runtime.clock import Clock
from tallystick.runtime.disk import Disk
from tallystick.runtime.events import Events
from tallystick.runtime.network import Network
from tallystick.runtime.rng import Random, system_random
from tallystick.runtime.worker import ThreadWorker, Workers

MODEST_FILES = 1024  # the least that operating systems let a process have open by default


@dataclass(frozen=True)
class Outside:
    """What one bookie, broker, name server or client works with: this machine, or a simulated one."""

    network: Network
    disk: Disk
    clock: Clock
    events: Events
    open_files: int = MODEST_FILES  # that the process may have
    workers: Workers = ThreadWorker
    random: Random = field(default_factory=system_random)
