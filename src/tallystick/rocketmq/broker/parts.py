"""The parts of a broker that its requests use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.rocketmq.broker.clients import ClientsCore
from tallystick.rocketmq.broker.delays import Delays
from tallystick.rocketmq.broker.deletions import AtOnce, Finisher
from tallystick.rocketmq.broker.groups import Groups
from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.broker.metrics import BrokerCounts
from tallystick.rocketmq.broker.offsets import Offsets
from tallystick.rocketmq.broker.pages import PagedTable
from tallystick.rocketmq.broker.registration import BrokerIdentity
from tallystick.rocketmq.broker.role import Standing
from tallystick.rocketmq.broker.saves import OnSaved, Saves
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.broker.topics import Topics
from tallystick.rocketmq.broker.traffic import Traffic
from tallystick.rocketmq.remoting.link import Link
from tallystick.rocketmq.remoting.slices import at_once
from tallystick.rocketmq.store.store import MessageStore
from tallystick.rocketmq.wire.bodies import HaStatus
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events

# Calls what it is given when the name servers know the topics as they are now, or cannot be told in time.
WhenAnnounced = Callable[[Callable[[], None]], None]

# Does long work, such as the parts of a text, some milliseconds at a time, and gives all of it, or what it raised, to
# what follows; last the host that asks.
MakeSlices = Callable[[Iterable[Any], Callable[[list[Any] | Exception], None], str], None]


# Calls when the change of locks of that number is on the disk, or with the reason why it is not.
AfterLocks = Callable[[int, OnSaved], None]


def _saved_at_once(change: int, done: OnSaved) -> None:
    done(None)


def _at_once(done: Callable[[], None]) -> None:
    done()


@dataclass(frozen=True)
class Parts:
    """The parts of one running broker. All of them belong to the loop."""

    settings: BrokerSettings
    standing: Standing
    identity: BrokerIdentity
    clock: Clock
    events: Events
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    delays: Delays
    clients: ClientsCore[Link]
    locks: QueueLocksCore
    ha_status: Callable[[], HaStatus]
    saves: Saves
    tables_by_name: Mapping[str, PagedTable]  # what slaves of ours copy by pages, by name
    traffic: Traffic = field(default_factory=Traffic)
    counts: BrokerCounts = field(default_factory=BrokerCounts)
    when_announced: WhenAnnounced = _at_once
    deletions: Finisher = field(default_factory=AtOnce)
    make_slices: MakeSlices = at_once
    locks_saved: AfterLocks = _saved_at_once
