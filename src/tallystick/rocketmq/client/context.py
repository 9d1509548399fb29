"""The parts that the producers and consumers of one client share."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from tallystick.rocketmq.client.outages import Outages
from tallystick.rocketmq.client.routes import TopicRoutes
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import BrokerChoice
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.message_ids import UniqueKeys
from tallystick.rocketmq.wire.values import MessageQueue
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.rng import Random


@dataclass(frozen=True)
class BrokerContext:
    client_id: str
    remoting: RemotingClient
    routes: TopicRoutes
    brokers: BrokerChoice
    outages: Outages  # of topics at a broker set, of brokers that hear heartbeats, of groups' shares, commits and locks
    ids: UniqueKeys
    settings: BrokerClientSettings
    clock: Clock
    random: Random
    events: Events
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)  # which they work on
    lockers: dict[tuple[str, MessageQueue], object] = field(default_factory=dict)  # by group: see ``QueueLocks``

    def tell_outage(self, kind: str, key: Hashable, error: Exception, **fields: object) -> None:
        """Count a failure of ``key`` among the ``outages``, and emit ``kind`` if it is to be reported now."""
        if failures := self.outages.failed(key, self.clock.now()):
            self.events.emit(kind, **fields, failures=failures, reason=str(error))


def message_ids(random: Random) -> UniqueKeys:
    """Returns the ids for the messages of one client. Where an original client has its address and process, this one
    has random bits: it need not look up its own name to be unique."""
    return UniqueKeys(random.getrandbits(32).to_bytes(4, "big"), random.getrandbits(16), random.getrandbits(32))
