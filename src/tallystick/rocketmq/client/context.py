"""What the producers and consumers of one client share."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from tallystick.rocketmq.client.routes import TopicRoutes
from tallystick.rocketmq.client.settings import BrokerClientSettings
from tallystick.rocketmq.client.topic import BrokerChoice
from tallystick.rocketmq.remoting.client import RemotingClient
from tallystick.rocketmq.wire.message_ids import UniqueKeys
from tallystick.runtime.clock import Clock
from tallystick.runtime.events import Events
from tallystick.runtime.rng import Random


@dataclass(frozen=True)
class BrokerContext:
    client_id: str
    remoting: RemotingClient
    routes: TopicRoutes
    brokers: BrokerChoice
    ids: MessageIds
    settings: BrokerClientSettings
    clock: Clock
    random: Random
    events: Events


class MessageIds:
    """Unique keys of the messages that this client sends; their time counts from the month in which they are made.

    Where an original client has its address, this one has chance: it need not look up its own name to be unique.
    """

    def __init__(self, random: Random, process_id: int) -> None:
        self._process_id = process_id
        self._address = random.getrandbits(32).to_bytes(4, "big")
        self._number = random.getrandbits(32)
        self._month_ends_ms = 0

    def next(self, now_ms: int) -> str:
        if now_ms >= self._month_ends_ms:
            start_ms, self._month_ends_ms = month_of(now_ms)
            self._keys = UniqueKeys(self._address, self._process_id, self._number, start_ms)
        return self._keys.next(now_ms)


def month_of(now_ms: int) -> tuple[int, int]:
    """The first moments of this month and of the next one, local time, in ms."""
    now = datetime.datetime.fromtimestamp(now_ms / 1000)
    start = datetime.datetime(now.year, now.month, 1)
    end = datetime.datetime(now.year + now.month // 12, now.month % 12 + 1, 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
