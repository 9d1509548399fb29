"""The options of the format ``tally-ledger``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.admin.dev_lookup import find_uri
from tallystick.bookkeeper.metadata.uri import require_shared
from tallystick.bookkeeper.wire.values import MAX_ID, LedgerId
from tallystick.errors import Unauthorized, UsageError
from tallystick.pipeline.cuts import Limits
from tallystick.pipeline.ledger.bounds import LedgerBound
from tallystick.pipeline.ledger.schema import COLUMNS, FORMAT
from tallystick.pipeline.ledger.selection import Selection
from tallystick.pipeline.notes import note
from tallystick.pipeline.option_values import CUTTING, TRIGGERING, OptionValues, number_of_key, triggering
from tallystick.pipeline.trigger import TriggerLimits

BATCH_ONLY = ("firstEntry", "lastEntry")
FOLLOWING_ONLY = ("startingOffsets", "failOnDataLoss", *TRIGGERING)
PASSWORD_VARIABLE = "TALLY_PASSWORD"

OPTIONS = {
    "path": "what load(path) says: which ledgers, or with :// in it the uri",
    "uri": "where the metadata is: sqlite:///path or zk+hierarchical://host:port;host:port/ledgers (else TALLY_URI, "
    "else the running development cluster)",
    "ledgers": 'which ledgers: "all" (the default) or ids and ranges such as "1,2,5-9"',
    "columns": "which columns, in which order (default: ledger,entry,lac,length,payload)",
    "firstEntry": "of a batch: the first entry of each ledger to read (default 0)",
    "lastEntry": "of a batch: the last entry of each ledger to read, inclusive (default: all up to the LAC)",
    "passwordFile": "a file with the password of the ledgers, read on each worker (default: the environment variable "
    "TALLY_PASSWORD there, else none)",
    "password": "the password itself, with a warning: whoever sees the options has it",
    "passwords": 'passwords of single ledgers, as JSON: {"7": "secret"}; they win over the others, with a warning',
    "startingOffsets": "of a streaming query: latest (the default), earliest, or the entry by ledger as JSON: "
    '{"12": 345, "13": -2}',
    "failOnDataLoss": "of a streaming query: true (the default): what was deleted before it was read is an error; "
    "false: it is left out",
    **CUTTING,
    "maxRecordsPerPartition": "the most entries that one task reads (default: any number)",
    **triggering("entries"),
}


@dataclass(frozen=True)
class LedgerOptions:
    """All options, checked. No password is ever in its repr."""

    uri: str
    selection: Selection = field(default_factory=Selection)
    columns: tuple[str, ...] = COLUMNS.names
    start: LedgerBound = field(default_factory=LedgerBound)
    fail_on_data_loss: bool = True
    limits: Limits = field(default_factory=Limits)
    trigger: TriggerLimits = field(default_factory=TriggerLimits)
    password_file: str | None = None
    has_variable: bool = False  # TALLY_PASSWORD was set where the query was planned
    password: bytes | None = field(default=None, repr=False)
    passwords: Mapping[LedgerId, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        *,
        follows: bool | None = None,
    ) -> LedgerOptions:
        """From Spark's options. ``environment``: None is the process's. ``follows``: of a streaming query, or of a
        batch; None where that is not known yet. Raises UsageError."""
        environment = os.environ if environment is None else environment
        values = OptionValues(options, OPTIONS).with_path("uri" if "://" in options.get("path", "") else "ledgers")
        values.refuse_of_other_kind(BATCH_ONLY, FOLLOWING_ONLY, follows=follows)
        if "password" in values and "passwordFile" in values:
            raise UsageError("passwordFile and password are two answers to one question: give one")
        uri = require_shared(values.given_or("uri", lambda: find_uri(environment)))
        first, last = values.integer("firstEntry", 0), values.integer("lastEntry", MAX_ID)
        return cls(
            uri=uri,
            selection=Selection.parse(values.text("ledgers", "all"), first, last),
            columns=values.columns(COLUMNS),
            start=LedgerBound.parse("startingOffsets", values.text("startingOffsets")),
            fail_on_data_loss=values.is_true("failOnDataLoss", default=True),
            limits=values.limits(),
            trigger=values.trigger_limits(),
            password_file=values.text("passwordFile") or None,
            has_variable=bool(environment.get(PASSWORD_VARIABLE)),
            password=values.text("password").encode() if "password" in values else None,
            passwords=_passwords(values.text("passwords", "{}")),
        )

    def password_of(self, ledger: LedgerId) -> bytes:
        """Returns by what a ledger is read, in this process: files and variables are this machine's. Raises UsageError,
        Unauthorized."""
        clear = self.passwords.get(ledger, self.password)
        if clear is not None:
            return clear
        if self.password_file is not None:
            from tallystick.pipeline.key_files import key_file, password_in

            return password_in(key_file(self.password_file))
        password = os.environ.get(PASSWORD_VARIABLE, "").encode()
        if self.has_variable and not password:
            raise Unauthorized(
                f"{PASSWORD_VARIABLE} is set where the query was planned, and not where this task runs: give "
                "passwordFile, a file on each machine",
                ledger=ledger,
            )
        return password

    def warn(self) -> None:
        """Tell of passwords that whoever sees the options can read."""
        if self.password or self.passwords:
            note(FORMAT, "a password is an option in plain text: give passwordFile, or set TALLY_PASSWORD")


def _passwords(text: str) -> dict[LedgerId, bytes]:
    # The text is never part of an error: it holds secrets.
    try:
        passwords = json.loads(text)
        return {number_of_key(ledger): password.encode() for ledger, password in passwords.items()}
    except (ValueError, AttributeError, RecursionError):
        raise UsageError('passwords is a JSON object of ledger ids and texts, as in {"7": "secret"}') from None
