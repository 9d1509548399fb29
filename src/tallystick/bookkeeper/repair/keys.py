"""Settings of the auditor and the replicator from keys: those of the original's file, in a file of a bookie's too."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field

from tallystick.bookkeeper.metadata.uri import SECURED, check_secured, require_plain
from tallystick.bookkeeper.repair.settings import RepairSettings
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Key, Part, Schema, milliseconds


@dataclass(frozen=True)
class AutoRecoverySettings:
    """Of a process of its own. Raises UsageError for values that cannot work."""

    metadata_uri: str
    name: str = field(default_factory=socket.gethostname)  # in the votes and locks: this machine's
    session_timeout_s: float = 10.0
    repair: RepairSettings = field(default_factory=RepairSettings)

    def __post_init__(self) -> None:
        if self.session_timeout_s <= 0:
            raise UsageError("zkTimeout must be above 0", value=self.session_timeout_s)


def _metadata_uri(key: str, value: str) -> str:
    try:
        return require_plain(value)
    except UsageError as error:
        raise UsageError(f"{key}: {error.message}", **error.fields) from error


KEYS = Part(
    RepairSettings,
    {
        "lostBookieRecoveryDelay": Key("grace_s", keyfile.number),
        "openLedgerRereplicationGracePeriod": milliseconds("open_grace_s"),
        "auditorPeriodicBookieCheckInterval": Key("audit_every_s", keyfile.number),
        "auditLedgersPerSecond": Key("audit_ledgers_per_s", keyfile.number),
        "closedLedgerCheckInterval": milliseconds("close_check_s"),
        "auditSampleEntries": Key("sample_entries", keyfile.integer),
        "rereplicationEntryBatchSize": Key("batch_entries", keyfile.integer),
        "replicationRateByBytes": Key("bytes_per_s", keyfile.number),
        "replicationRetryInterval": milliseconds("retry_s"),
        "replicationPollInterval": milliseconds("poll_s"),
        "replicationLedgersAtOnce": Key("ledgers_at_once", keyfile.integer),
    },
)
SCHEMA = Schema(
    "autorecovery",
    Part(
        AutoRecoverySettings,
        {
            "metadataServiceUri": Key("metadata_uri", _metadata_uri),
            "zkTimeout": milliseconds("session_timeout_s"),
            "bookieId": Key("name", keyfile.text),
        },
    ),
    re.compile(r"tls.*|sasl.*|.*[aA]uth(Provider|orized|entication).*"),
    "it has neither authentication nor TLS",
    parts={"repair": KEYS},
    needed=("metadataServiceUri",),
    checked=(SECURED,),
    check=check_secured,
)
