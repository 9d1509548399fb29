"""The clients without ``async``: the same methods, for scripts, notebooks and Spark executors.

One thread for each (process, settings) runs an event loop; it starts with the first client and ends with the last. A
process that was forked gets a thread of its own, and a client made before the fork connects anew there. What belongs to
one connection (a writer, a stream, a cursor, a reader, a producer, a consumer) belongs to the process that made it.
"""

from tallystick.sync.brokers import Consumer, Producer, RocketMQ, topics
from tallystick.sync.client import BookKeeper, connect
from tallystick.sync.ledgers import LedgerReader, LedgerWriter
from tallystick.sync.sinks import SinkAttempt, StreamSink
from tallystick.sync.streams import Cursor, Stream, StreamReader

__all__ = [
    "BookKeeper",
    "Consumer",
    "Cursor",
    "LedgerReader",
    "LedgerWriter",
    "Producer",
    "RocketMQ",
    "SinkAttempt",
    "Stream",
    "StreamReader",
    "StreamSink",
    "connect",
    "topics",
]
