"""A bookie's settings from keys: those of the original's ``bk_server.conf``, in its file or in a TOML table of ours.

::

    [bookie]                                     metadataServiceUri=zk+hierarchical://127.0.0.1:2181/ledgers
    metadataServiceUri = "sqlite:///srv/m.db"    bookiePort=3181
    bookiePort = 3181                            journalDirectory=/srv/journal
    …                                            …
"""

from __future__ import annotations

import re

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.metadata.uri import require_shared
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Fixed, Key, Part, Schema, milliseconds


def _one_folder(key: str, value: str) -> str:
    folders = [folder.strip() for folder in value.split(",") if folder.strip()]
    if len(folders) != 1:
        raise UsageError(f"{key} names {len(folders)} folders; a bookie of ours has exactly one", value=value)
    return folders[0].rstrip("/") or "/"


def _metadata_uri(key: str, value: str) -> str:
    try:
        return require_shared(value)
    except UsageError as error:
        raise UsageError(f"{key}: {error.message}", **error.fields) from error


KEYS = Part(
    BookieSettings,
    {
        "metadataServiceUri": Key("metadata_uri", _metadata_uri),
        "zkTimeout": milliseconds("session_timeout_s"),
        "bookiePort": Key("port", keyfile.integer),
        "bookieId": Key("bookie_id", keyfile.text),
        "advertisedAddress": Key("advertised_host", keyfile.text),
        "listeningInterface": Key("interface", keyfile.text),
        "rack": Key("rack", keyfile.text),
        "machine": Key("machine", keyfile.text),
        "allowLoopback": Key("allow_loopback", keyfile.flag),
        "serverSockKeepalive": Key("keep_alive", keyfile.flag),
        "journalDirectory": Key("journal_dir", _one_folder),
        "journalDirectories": Key("journal_dir", _one_folder),  # later in the table: wins, as in the original
        "ledgerDirectories": Key("ledger_dir", _one_folder),
        "nettyMaxFrameSizeBytes": Key("max_frame_bytes", keyfile.integer),
        "maxBatchReadSize": Key("max_batch_read_bytes", keyfile.integer),
        "gcWaitTime": milliseconds("gc_wait_s"),
        "gcLargeDeletionShare": Key("gc_large_share", keyfile.number),
        "gcLargeDeletionWaitTime": milliseconds("gc_large_wait_s"),
        "maxFencesWithoutEntries": Key("max_fences_without_entries", keyfile.integer),
        "maxLedgersWithoutMetadata": Key("max_ledgers_without_metadata", keyfile.integer),
        "diskUsageThreshold": Key("disk_usage_threshold", keyfile.number),
        "minUsableSizeForHighPriorityWrites": Key("high_priority_spare_bytes", keyfile.integer),
        "limboFillBytesPerSecond": Key("fill_bytes_per_s", keyfile.number),
        "autoRecoveryDaemonEnabled": Key("auto_recovery", keyfile.flag),
        "httpServerEnabled": Key("http_enabled", keyfile.flag),
        "httpServerHost": Key("http_host", keyfile.text),
        "httpServerPort": Key("http_port", keyfile.integer),
    },
)
FIXED = {
    "journalSyncData": Fixed(True, "an entry is acknowledged only when it is on the disk"),
    "journalWriteData": Fixed(True, "without a journal acknowledged entries and fences would be lost with the power"),
}
SCHEMA = Schema(
    "bookie",
    KEYS,
    re.compile(r"tls.*|sasl.*|.*[aA]uth(Provider|orized|entication).*|permittedStartupUsers|zkEnableSecurity"),
    "this bookie has neither authentication nor TLS",
    needed=("metadataServiceUri", "journalDirectory", "ledgerDirectories"),
    fixed=FIXED,
)
