"""The options of the format ``tally-ledger``. Unknown ones are refused: a typo must not read other rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.bookkeeper.wire.values import MAX_ID, LedgerId
from tallystick.errors import UsageError
from tallystick.pipeline.plan import Limits
from tallystick.pipeline.schema import COLUMNS, parse_columns
from tallystick.pipeline.selection import Selection

PASSWORD_VARIABLE = "TALLY_PASSWORD"
URI_VARIABLE = "TALLY_URI"

# As they are shown; Spark hands their names over in any case. A test holds docs/spark.md to this list.
OPTIONS = {
    "uri": "where the metadata is: sqlite:///path or zk+hierarchical://host:port;host:port/ledgers (else TALLY_URI)",
    "ledgers": 'which ledgers: "all" (the default) or ids and ranges such as "1,2,5-9"',
    "columns": "which columns, in which order (default: ledger,entry,lac,length,payload)",
    "firstEntry": "the first entry of each ledger to read (default 0)",
    "lastEntry": "the last entry of each ledger to read, inclusive (default: all up to the LAC)",
    "password": "the password of the ledgers (default: the environment variable TALLY_PASSWORD, else none)",
    "passwords": 'passwords of single ledgers, as JSON: {"7": "secret"}; they win over password',
    "maxBytesPerPartition": "about how much one task reads (default 134217728; a suffix k, m or g may be used)",
    "minPartitions": "make at least about this many partitions, to use more cores (default 1)",
}
_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class LedgerOptions:
    """All options, checked. No password is ever in its repr."""

    uri: str
    selection: Selection = field(default_factory=Selection)
    columns: tuple[str, ...] = tuple(COLUMNS)
    limits: Limits = field(default_factory=Limits)
    password: bytes = field(default=b"", repr=False)
    passwords: Mapping[LedgerId, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> LedgerOptions:
        """From Spark's options, whose names come in any case. Raises UsageError."""
        known = {name.lower(): name for name in OPTIONS}
        values = {known.get(name.lower(), ""): value for name, value in given.items()}
        unknown = sorted(name for name in given if name.lower() not in known)
        if unknown:
            raise UsageError(f"unknown option: {', '.join(unknown)}; known: {', '.join(OPTIONS)}")
        uri = values.get("uri") or environment.get(URI_VARIABLE, "")
        if not uri:
            raise UsageError("the option uri is missing, and TALLY_URI is not set")
        if uri.startswith("memory:"):
            raise UsageError(
                "memory:// is seen by one process only, and Spark plans in another: use sqlite:// or zk://"
            )
        first, last = _integer(values, "firstEntry", 0), _integer(values, "lastEntry", MAX_ID)
        return cls(
            uri=uri,
            selection=Selection.parse(values.get("ledgers", "all"), first, last),
            columns=parse_columns(values["columns"]) if "columns" in values else tuple(COLUMNS),
            limits=Limits(_bytes(values, "maxBytesPerPartition"), _integer(values, "minPartitions", 1, least=1)),
            password=values.get("password", environment.get(PASSWORD_VARIABLE, "")).encode(),
            passwords=_passwords(values.get("passwords", "{}")),
        )

    def password_of(self, ledger: LedgerId) -> bytes:
        return self.passwords.get(ledger, self.password)


def _integer(values: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or not least <= int(text) <= MAX_ID:
        raise UsageError(f"{name} is a whole number from {least}", value=text)
    return int(text)


def _bytes(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "").strip().lower()
    if not text:
        return Limits().max_partition_bytes
    digits, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
    if not digits.isdecimal() or int(digits) < 1:
        raise UsageError(f"{name} is a number of bytes, as in 67108864 or 64m", value=text)
    return int(digits) * unit


def _passwords(text: str) -> dict[LedgerId, bytes]:
    # The text is never part of an error: it holds secrets.
    try:
        found = json.loads(text)
        return {int(ledger): password.encode() for ledger, password in found.items()}
    except (ValueError, AttributeError):
        raise UsageError('passwords is a JSON object of ledger ids and texts, as in {"7": "secret"}') from None
