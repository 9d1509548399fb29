"""The columns of the format ``tally-topic``: a message as its consumers see it, and where it is.

``body`` is what the producer sent; ``keys`` are as they are stored, parted by blanks; ``msgId`` is the unique key that
the producer's client gave, or that of the place where the message is stored; ``transactionId`` is the unique key of a
transactional message (``MessageClientExt``, ``MessageDecoder``).
"""

from __future__ import annotations

from tallystick.pipeline.columns import HEADERS, HEADERS_TYPE, Columns

FORMAT = "tally-topic"
COLUMNS = Columns(
    {
        "topic": "string",
        "brokerName": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "body": "binary",
        "keys": "string",
        "tags": "string",
        "properties": "map<string,string>",
        "bornTimestamp": "timestamp",
        "storeTimestamp": "timestamp",
        "msgId": "string",
        "flag": "int",
        "sysFlag": "int",
        "reconsumeTimes": "int",
        "bornHost": "string",
        "storeHost": "string",
        "physicalOffset": "bigint",
        "transactionId": "string",
        HEADERS: HEADERS_TYPE,
    },
    nullable=frozenset(("keys", "tags", "bornTimestamp", "storeTimestamp", "transactionId", HEADERS)),
)
