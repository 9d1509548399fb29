"""The columns of the format ``tally-stream``: a message as its producer sent it, and where it is.

``key`` are the bytes of a text in UTF-8, or those that were given; ``value`` is null where the message has none, which
says that what was under its key is gone. ``position`` names an entry, and within a batch of messages one of them
(``batchIndex``). A raw entry has a place and a value, and no properties; all else is null.
"""

from __future__ import annotations

from tallystick.pipeline.columns import HEADERS, HEADERS_TYPE, Columns

FORMAT = "tally-stream"
COLUMNS = Columns(
    {
        "stream": "string",
        "position": "string",
        "key": "binary",
        "value": "binary",
        "properties": "map<string,string>",
        "publishTime": "timestamp",
        "eventTime": "timestamp",
        "producer": "string",
        "sequence": "bigint",
        "ledger": "bigint",
        "entry": "bigint",
        "batchIndex": "int",
        HEADERS: HEADERS_TYPE,
    },
    nullable=frozenset(("key", "value", "publishTime", "eventTime", "producer", "sequence", "batchIndex", HEADERS)),
)
