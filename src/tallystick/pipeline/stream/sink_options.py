"""The options of writing with the format ``tally-stream``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.admin.dev_lookup import find_uri
from tallystick.bookkeeper.metadata.uri import require_shared
from tallystick.bookkeeper.stream.messages import ENTRY_FORMATS
from tallystick.bookkeeper.stream.names import stream_name
from tallystick.bookkeeper.stream.settings import UNLIMITED, StreamSettings
from tallystick.bookkeeper.stream.splice.record import application_name
from tallystick.bookkeeper.wire.compression import Compression
from tallystick.errors import UsageError
from tallystick.pipeline.option_values import AT_LEAST_ONCE, ONCE, OptionValues

SINK_OPTIONS = {
    "path": "what save(path) and start(path) say: the stream",
    "uri": "where the metadata is: sqlite:///path or zk+hierarchical://host:port;host:port/ledgers (else TALLY_URI, "
    "else the running development cluster)",
    "stream": "the stream to write: tenant/namespace/persistent/topic, or persistent://tenant/namespace/topic",
    "application": "of a streaming query: a name that is kept for good (default: the query's id). With a name of its "
    "own a query that lost its checkpoint is refused, and stores nothing twice",
    "txnAppId": "of a batch: the name of who writes, kept for good",
    "txnVersion": "of a batch: its number, above that of the batch before; a number that is stored already is left out",
    "delivery": "exactly-once (the default): each batch is in the stream once, as a whole; at-least-once: rows are "
    "there as soon as they are written, at little cost a batch, and come twice when a task or a batch is repeated",
    "switch": "false (the default); true: a stream that an owner wrote, and that is open nowhere, is written by sinks "
    "from now on; with delivery=at-least-once one that sinks wrote is written by an owner, the driver",
    "entryFormat": "pulsar (the default): messages with key, properties and times; raw: each value is an entry",
    "compression": "of messages: none (the default), lz4, zlib, zstd or snappy",
    "ensemble": "bookies of a ledger (default 3)",
    "writeQuorum": "so many of them store an entry (default 2)",
    "ackQuorum": "so many of them must have stored it (default 2)",
    "retentionSeconds": "delete ledgers that no cursor needs so long after they were committed (default: never)",
    "retentionBytes": "delete ledgers that no cursor needs when those behind them have so many bytes (default: never)",
    "checkpointLocation": "Spark's own",
}
COMPRESSIONS = ("none", *[each.name.lower() for each in Compression if each is not Compression.NONE])


@dataclass(frozen=True)
class SinkOptions:
    """All options, checked. ``application`` is None where it is the query's id, or unnecessary; ``version`` is a
    batch's. ``is_once`` False: at least once."""

    uri: str
    stream: str
    application: str | None
    version: int | None
    settings: StreamSettings
    switch: bool = False
    is_once: bool = True
    checkpoint: str | None = None  # where a streaming query has its own, as far as it is known here

    @classmethod
    def parse(
        cls, options: Mapping[str, str], environment: Mapping[str, str] | None = None, *, follows: bool
    ) -> SinkOptions:
        """From Spark's options. ``environment``: None is the process's. ``follows``: of a streaming query, or of a
        batch. Raises UsageError."""
        environment = os.environ if environment is None else environment
        values = OptionValues(options, SINK_OPTIONS).with_path("stream")
        if "stream" not in values:
            raise UsageError("give the option stream: which stream is to be written")
        is_once = values.choice("delivery", (ONCE, AT_LEAST_ONCE)) == ONCE
        values.check_writer(is_once=is_once, follows=follows)
        application = values.text("application" if follows else "txnAppId")
        return cls(
            uri=require_shared(values.given_or("uri", lambda: find_uri(environment))),
            stream=stream_name(values.text("stream")),
            application=application_name(application) if application else None,
            version=None if follows else values.integer("txnVersion", 0),
            settings=_settings(values),
            switch=values.choice("switch", ("false", "true")) == "true",
            is_once=is_once,
            checkpoint=values.text("checkpointLocation") or None,
        )


def _settings(values: OptionValues) -> StreamSettings:
    is_raw = values.choice("entryFormat", ENTRY_FORMATS) == "raw"
    compression = values.choice("compression", COMPRESSIONS)
    return StreamSettings(
        ensemble=values.integer("ensemble", 3, least=1),
        write_quorum=values.integer("writeQuorum", 2, least=1),
        ack_quorum=values.integer("ackQuorum", 2, least=1),
        entry_format="raw" if is_raw else "pulsar",
        compression=None if compression == "none" else compression,
        retention_s=values.integer("retentionSeconds", UNLIMITED),
        retention_bytes=values.size("retentionBytes", UNLIMITED),
    )
