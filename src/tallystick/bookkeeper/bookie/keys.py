"""A bookie's settings from keys: those of the original's ``bk_server.conf``, in its file or in a TOML table of ours.

::

    [bookie]                                     metadataServiceUri=zk+hierarchical://127.0.0.1:2181/ledgers
    metadataServiceUri = "sqlite:///srv/m.db"    bookiePort=3181
    bookiePort = 3181                            journalDirectory=/srv/journal
    …                                            …
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tallystick.bookkeeper.bookie.config import BookieSettings
from tallystick.bookkeeper.bookie.security import SecuritySettings
from tallystick.bookkeeper.metadata.uri import SECURED, check_secured, require_plain
from tallystick.bookkeeper.wire.auth import DIGEST_MD5
from tallystick.errors import UsageError
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Fixed, Key, Part, Schema, milliseconds

TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory"
SASL_FACTORY = "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory"


def _folders(key: str, value: str) -> tuple[str, ...]:
    folders = [folder.strip() for folder in value.split(",") if folder.strip()]
    if not folders:
        raise UsageError(f"{key} names no folder", value=value)
    return tuple(folder.rstrip("/") or "/" for folder in folders)


def _metadata_uri(key: str, value: str) -> str:
    try:
        return require_plain(value)
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
        "journalDirectory": Key("journal_dirs", _folders, ",".join),
        "journalDirectories": Key("journal_dirs", _folders, ",".join),  # later in the table: wins, as in the original
        "ledgerDirectories": Key("ledger_dirs", _folders, ",".join),
        "nettyMaxFrameSizeBytes": Key("max_frame_bytes", keyfile.integer),
        "maxBatchReadSize": Key("max_batch_read_bytes", keyfile.integer),
        "gcWaitTime": milliseconds("gc_wait_s"),
        "gcLargeDeletionShare": Key("gc_large_share", keyfile.number),
        "gcLargeDeletionWaitTime": milliseconds("gc_large_wait_s"),
        "gcOverreplicatedLedgerWaitTime": milliseconds("surplus_wait_s"),
        "maxFencesWithoutEntries": Key("max_fences_without_entries", keyfile.integer),
        "maxLedgersWithoutMetadata": Key("max_ledgers_without_metadata", keyfile.integer),
        "allowStorageExpansion": Key("allow_expansion", keyfile.flag),
        "readOnlyModeOnAnyDiskFullEnabled": Key("read_only_when_any_full", keyfile.flag),
        "diskUsageThreshold": Key("disk_usage_threshold", keyfile.number),
        "diskUsageWarnThreshold": Key("disk_usage_warn_threshold", keyfile.number),
        "minUsableSizeForHighPriorityWrites": Key("high_priority_spare_bytes", keyfile.integer),
        "compactionRateByBytes": Key("compaction_bytes_per_s", keyfile.integer),
        "compactionRateByEntries": Key("compaction_entries_per_s", keyfile.integer),
        "limboFillBytesPerSecond": Key("fill_bytes_per_s", keyfile.integer),
        "scrubBytesPerSecond": Key("scrub_bytes_per_s", keyfile.integer),
        "autoRecoveryDaemonEnabled": Key("auto_recovery", keyfile.flag),
        "httpServerEnabled": Key("http_enabled", keyfile.flag),
        "httpServerHost": Key("http_host", keyfile.text),
        "httpServerPort": Key("http_port", keyfile.integer),
        "metricsAllowAnonymous": Key("http_anonymous", keyfile.flag),  # ours
    },
)


def _tls_factory(key: str, value: str) -> bool:
    if value != TLS_FACTORY:
        raise UsageError(f"{key} is {TLS_FACTORY}, which has TLS from PEM files here", value=value)
    return True


def _tls_provider(key: str, value: str) -> str:
    """Both are the one that there is here."""
    if value.lower() not in ("openssl", "jdk"):
        raise UsageError(f"{key} is OpenSSL, or JDK", value=value)
    return value


def _pem(key: str, value: str) -> str:
    if value.upper() != "PEM":
        raise UsageError(f"{key} is PEM: keys and certificates are read from text files alone", value=value)
    return value


def _mechanisms(key: str, value: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in value.split(",") if name.strip())


def _auth_factory(key: str, value: str) -> tuple[str, ...]:
    if value != SASL_FACTORY:
        raise UsageError(f"{key} is {SASL_FACTORY}; what else there is here is named by authMechanisms", value=value)
    return (DIGEST_MD5,)


SECURITY = Part(
    SecuritySettings,
    {
        "tlsProviderFactoryClass": Key("tls", _tls_factory, lambda tls: TLS_FACTORY if tls else ""),
        "tlsRequired": Key("tls_required", keyfile.flag),
        "tlsCertificatePath": Key("tls_certificate", keyfile.text),
        "tlsKeyStore": Key("tls_key", keyfile.text),
        "tlsKeyStorePasswordPath": Key("tls_key_password", keyfile.text),
        "tlsTrustStore": Key("tls_trust", keyfile.text),
        "tlsClientAuthentication": Key("tls_ask_certificate", keyfile.flag),
        "tlsCertFilesRefreshDurationSeconds": Key("tls_look_s", keyfile.number),
        "bookieAuthProviderFactoryClass": Key("mechanisms", _auth_factory, lambda _: ""),
        "authMechanisms": Key("mechanisms", _mechanisms, ",".join),  # later in the table: wins
        "allowAnonymous": Key("allow_anonymous", keyfile.flag),
        "usersFile": Key("users_file", keyfile.text),
        "permissionsFile": Key("permissions_file", keyfile.text),
        "saslJaasClientAllowedIds": Key("sasl_ids", keyfile.text),
    },
)
# They say what there is no other of here: checked, and nothing more.
CHECKED = {"tlsProvider": _tls_provider, "tlsKeyStoreType": _pem, "tlsTrustStoreType": _pem}


def _check(texts: Mapping[str, str]) -> None:
    """Refuse what an operator takes for protection and is none without another key."""
    check_secured(texts)
    for name, check in CHECKED.items():
        if name in texts:
            check(name, texts[name])
    for name, value in texts.items():
        if name.startswith("tls") and value.lower() != "false" and "tlsProviderFactoryClass" not in texts:
            raise UsageError(f"{name} without tlsProviderFactoryClass would protect nothing")
    plugin = texts.get("bookieAuthProviderFactoryClass")
    if plugin is not None and "usersFile" not in texts:
        raise UsageError("bookieAuthProviderFactoryClass needs usersFile: JAAS is not read here")
    if "saslJaasClientAllowedIds" in texts and plugin is None and DIGEST_MD5 not in texts.get("authMechanisms", ""):
        raise UsageError("saslJaasClientAllowedIds without authMechanisms=sasl would let in everybody")


FIXED = {
    "journalSyncData": Fixed(True, "an entry is acknowledged only when it is on the disk"),
    "journalWriteData": Fixed(True, "without a journal acknowledged entries and fences would be lost with the power"),
}
SCHEMA = Schema(
    "bookie",
    KEYS,
    re.compile(
        r"(?!" + "|".join((*SECURITY.keys, *CHECKED)) + r")"
        r"(tls.*|sasl.*|.*[aA]uth(Provider|orized|entication).*|permittedStartupUsers)"
    ),
    "this bookie has no such protection",
    parts={"security": SECURITY},
    needed=("metadataServiceUri", "journalDirectory", "ledgerDirectories"),
    fixed=FIXED,
    checked=(*CHECKED, SECURED),
    check=_check,
)
