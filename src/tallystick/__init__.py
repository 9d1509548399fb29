"""Replicated logs you can pip-install: Apache BookKeeper's ledgers and Apache RocketMQ's topics, with Spark over both.

::

    async with tallystick.connect("sqlite:///var/lib/tally/meta.db") as bk:
        async with bk.create_ledger() as writer:
            await writer.append(b"hello")

    async with tallystick.topics("127.0.0.1:9876") as mq:
        await mq.producer("greeters").send("Greetings", b"hello", tags="en")
        async for message in mq.consumer("readers", "Greetings", start="first"):
            print(message.body)

``tallystick.sync`` has the same without ``async``; ``tallystick.errors`` everything that can be raised. The names below
are imported when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true, and ``typing`` need not be loaded

if TYPE_CHECKING:
    from typing import Any

    from tallystick.admin.dev_lookup import find_cluster
    from tallystick.bookkeeper.ledger.read import Entry
    from tallystick.bookkeeper.ledger.reader import LedgerReader
    from tallystick.bookkeeper.ledger.security import ClientSecurity
    from tallystick.bookkeeper.ledger.settings import ClientSettings
    from tallystick.bookkeeper.ledger.writer import LedgerWriter
    from tallystick.bookkeeper.stream.client import BookKeeper, connect
    from tallystick.bookkeeper.stream.cursor import Cursor
    from tallystick.bookkeeper.stream.messages import StreamMessage
    from tallystick.bookkeeper.stream.reader import StreamReader
    from tallystick.bookkeeper.stream.settings import StreamClientSettings, StreamSettings
    from tallystick.bookkeeper.stream.splice.attempt import SinkAttempt, SinkTicket
    from tallystick.bookkeeper.stream.splice.sink import Committed, StreamSink
    from tallystick.bookkeeper.stream.stream import Stream
    from tallystick.bookkeeper.wire.pulsar_messages import OutMessage
    from tallystick.bookkeeper.wire.stream_values import Position
    from tallystick.bookkeeper.wire.values import LedgerMetadata, LedgerState
    from tallystick.errors import TallyError
    from tallystick.rocketmq.client.client import RocketMQ, topics
    from tallystick.rocketmq.client.consumer import Consumer, ConsumerLag
    from tallystick.rocketmq.client.producer import Producer
    from tallystick.rocketmq.client.received import ReceivedMessage
    from tallystick.rocketmq.client.sending import SendResult, SendStatus
    from tallystick.rocketmq.client.settings import BrokerClientSettings
    from tallystick.rocketmq.remoting.security import BrokerSecurity
    from tallystick.rocketmq.wire.record import Message
    from tallystick.rocketmq.wire.values import MessageQueue
    from tallystick.runtime.events import Event, Events

__all__ = [
    "BookKeeper",
    "BrokerClientSettings",
    "BrokerSecurity",
    "ClientSecurity",
    "ClientSettings",
    "Committed",
    "Consumer",
    "ConsumerLag",
    "Cursor",
    "Entry",
    "Event",
    "Events",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerState",
    "LedgerWriter",
    "Message",
    "MessageQueue",
    "OutMessage",
    "Position",
    "Producer",
    "ReceivedMessage",
    "RocketMQ",
    "SendResult",
    "SendStatus",
    "SinkAttempt",
    "SinkTicket",
    "Stream",
    "StreamClientSettings",
    "StreamMessage",
    "StreamReader",
    "StreamSettings",
    "StreamSink",
    "TallyError",
    "connect",
    "find_cluster",
    "topics",
]

_HOMES = {
    "BookKeeper": "tallystick.bookkeeper.stream.client",
    "BrokerClientSettings": "tallystick.rocketmq.client.settings",
    "BrokerSecurity": "tallystick.rocketmq.remoting.security",
    "ClientSecurity": "tallystick.bookkeeper.ledger.security",
    "ClientSettings": "tallystick.bookkeeper.ledger.settings",
    "Committed": "tallystick.bookkeeper.stream.splice.sink",
    "Consumer": "tallystick.rocketmq.client.consumer",
    "ConsumerLag": "tallystick.rocketmq.client.consumer",
    "Cursor": "tallystick.bookkeeper.stream.cursor",
    "Entry": "tallystick.bookkeeper.ledger.read",
    "Event": "tallystick.runtime.events",
    "Events": "tallystick.runtime.events",
    "LedgerMetadata": "tallystick.bookkeeper.wire.values",
    "LedgerReader": "tallystick.bookkeeper.ledger.reader",
    "LedgerState": "tallystick.bookkeeper.wire.values",
    "LedgerWriter": "tallystick.bookkeeper.ledger.writer",
    "Message": "tallystick.rocketmq.wire.record",
    "MessageQueue": "tallystick.rocketmq.wire.values",
    "OutMessage": "tallystick.bookkeeper.wire.pulsar_messages",
    "Position": "tallystick.bookkeeper.wire.stream_values",
    "Producer": "tallystick.rocketmq.client.producer",
    "ReceivedMessage": "tallystick.rocketmq.client.received",
    "RocketMQ": "tallystick.rocketmq.client.client",
    "SendResult": "tallystick.rocketmq.client.sending",
    "SendStatus": "tallystick.rocketmq.client.sending",
    "SinkAttempt": "tallystick.bookkeeper.stream.splice.attempt",
    "SinkTicket": "tallystick.bookkeeper.stream.splice.attempt",
    "Stream": "tallystick.bookkeeper.stream.stream",
    "StreamClientSettings": "tallystick.bookkeeper.stream.settings",
    "StreamMessage": "tallystick.bookkeeper.stream.messages",
    "StreamReader": "tallystick.bookkeeper.stream.reader",
    "StreamSettings": "tallystick.bookkeeper.stream.settings",
    "StreamSink": "tallystick.bookkeeper.stream.splice.sink",
    "TallyError": "tallystick.errors",
    "connect": "tallystick.bookkeeper.stream.client",
    "find_cluster": "tallystick.admin.dev_lookup",
    "topics": "tallystick.rocketmq.client.client",
}


_MODULES = ("errors", "spark", "sync", "testing")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")  # which also makes it an attribute
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("tallystick")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
