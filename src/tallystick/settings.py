"""Files of settings: our TOML, or the original's ``bk_server.conf``. One vocabulary, the original's key names.

::

    [bookie]                                     metadataServiceUri=zk+hierarchical://127.0.0.1:2181/ledgers
    metadataServiceUri = "sqlite:///srv/m.db"    bookiePort=3181
    bookiePort = 3181                            journalDirectory=/srv/journal
    …                                            …

A key that changes what a bookie promises (unsynced journals, authentication, TLS, several folders) and is not supported
is refused by name: a bookie that ignored it would be a weaker one than its operator believes. All other keys that are
not ours are named in one warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.metadata.uri import require_shared
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.keyfile import Key

TABLE = "bookie"


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


KEYS: Mapping[str, Key] = {
    "metadataServiceUri": Key("metadata_uri", _metadata_uri),
    "zkTimeout": Key("session_timeout_s", keyfile.seconds),
    "bookiePort": Key("port", keyfile.integer),
    "bookieId": Key("bookie_id", keyfile.text),
    "advertisedAddress": Key("advertised_host", keyfile.text),
    "listeningInterface": Key("interface", keyfile.text),
    "allowLoopback": Key("allow_loopback", keyfile.flag),
    "journalDirectory": Key("journal_dir", _one_folder),
    "journalDirectories": Key("journal_dir", _one_folder),  # later in the table: wins, as in the original
    "ledgerDirectories": Key("ledger_dir", _one_folder),
    "nettyMaxFrameSizeBytes": Key("max_frame_bytes", keyfile.integer),
    "maxBatchReadSize": Key("max_batch_read_bytes", keyfile.integer),
    "gcWaitTime": Key("gc_wait_s", keyfile.seconds),
    "gcLargeDeletionShare": Key("gc_large_share", keyfile.number),
    "gcLargeDeletionWaitTime": Key("gc_large_wait_s", keyfile.seconds),
    "maxFencesWithoutEntries": Key("max_fences_without_entries", keyfile.integer),
    "diskUsageThreshold": Key("disk_usage_threshold", keyfile.number),
    "minUsableSizeForHighPriorityWrites": Key("high_priority_spare_bytes", keyfile.integer),
    "httpServerEnabled": Key("http_enabled", keyfile.flag),
    "httpServerHost": Key("http_host", keyfile.text),
    "httpServerPort": Key("http_port", keyfile.integer),
}
NEEDED = ("metadataServiceUri", "journalDirectory", "ledgerDirectories")
MUST_BE_TRUE: Mapping[str, str] = {
    "journalSyncData": "an entry is acknowledged only when it is on the disk",
    "journalWriteData": "without a journal acknowledged entries and fences would be lost with the power",
}
SECURITY = re.compile(r"tls.*|sasl.*|.*[aA]uth(Provider|orized|entication).*|permittedStartupUsers|zkEnableSecurity")


@dataclass(frozen=True)
class Loaded:
    """Settings, and the keys of the file that change nothing."""

    bookie: BookieSettings
    ignored: tuple[str, ...]


def load(path: str | None, overrides: Mapping[str, str]) -> Loaded:
    """The file, if any, with ``overrides`` (``--set``) on top. Raises UsageError, which names the key."""
    values = {} if path is None else keyfile.read_keys(path, TABLE)
    return bookie_settings({**values, **overrides})


def bookie_settings(values: Mapping[str, str]) -> Loaded:
    """Settings from keys and their text. An empty value counts as absent."""
    given = keyfile.given(values)
    _refuse(given)
    fields = {key.field: key.parse(name, given[name]) for name, key in KEYS.items() if name in given}
    keyfile.require((name for name in NEEDED if KEYS[name].field not in fields), given, KEYS)
    ignored = keyfile.unknown((name for name in given if not SECURITY.fullmatch(name)), {*KEYS, *MUST_BE_TRUE})
    return Loaded(keyfile.build(BookieSettings, KEYS, fields), ignored)


def _refuse(given: Mapping[str, str]) -> None:
    for name, why in MUST_BE_TRUE.items():
        if name in given and not keyfile.flag(name, given[name]):
            raise UsageError(f"{name}=false is not supported: {why}")
    for name, value in given.items():
        if SECURITY.fullmatch(name) and value.lower() != "false":
            raise UsageError(f"{name} is not supported: this bookie has neither authentication nor TLS")
