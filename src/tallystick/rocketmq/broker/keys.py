"""A broker's settings from keys: those of the original's ``broker.conf``, in its file or in a TOML table ``[broker]``.

A key that changes what a broker promises and is not supported is refused by name. All others that are not ours are
named by whoever asked for the settings, in one warning: they change nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.settings import BrokerSettings, Role
from tallystick.rocketmq.ha.settings import HaSettings
from tallystick.rocketmq.remoting.client import parse_address
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.rocketmq.store.consume_queue import UNIT
from tallystick.rocketmq.store.settings import StoreSettings
from tallystick.runtime import keyfile
from tallystick.runtime.keyfile import Key

TABLE = "broker"


def _role(key: str, value: str) -> Role:
    try:
        return Role(value.upper())
    except ValueError:
        raise UsageError(f"{key} is ASYNC_MASTER, SYNC_MASTER or SLAVE", value=value) from None


def _sync_flush(key: str, value: str) -> bool:
    if value.upper() not in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        raise UsageError(f"{key} is SYNC_FLUSH or ASYNC_FLUSH", value=value)
    return value.upper() == "SYNC_FLUSH"


def _name_servers(key: str, value: str) -> tuple[str, ...]:
    servers = tuple(server.strip() for server in re.split("[;,]", value) if server.strip())
    for server in servers:
        try:
            parse_address(server)
        except UsageError as error:
            raise UsageError(f"{key} is host:port of each name server", value=server) from error
    return servers


def _folder(key: str, value: str) -> str:
    return value.rstrip("/") or "/"


def _units(key: str, value: str) -> int:
    file_bytes = keyfile.integer(key, value)
    if file_bytes < UNIT.size:
        raise UsageError(f"{key} must be at least {UNIT.size}: a unit of a queue", value=value)
    return file_bytes // UNIT.size


def _hour(key: str, value: str) -> int:
    hours = [part for part in value.split(";") if part]
    if len(hours) != 1:
        raise UsageError(f"{key} is one hour of the day", value=value)
    return keyfile.integer(key, hours[0])


def _percent_used(at_least: int) -> Callable[[str, str], int]:
    """A share of the disk, not below what the original takes; above 95 it is 95, as there."""

    def parse(key: str, value: str) -> int:
        percent = keyfile.integer(key, value)
        if not at_least <= percent <= 100:
            raise UsageError(f"{key} is {at_least} to 95 per cent", value=value)
        return min(percent, 95)

    return parse


KEYS: Mapping[str, Key] = {
    "storePathRootDir": Key("store_dir", _folder),
    "brokerName": Key("name", keyfile.text),
    "brokerClusterName": Key("cluster", keyfile.text),
    "brokerId": Key("broker_id", keyfile.integer),
    "brokerRole": Key("role", _role),
    "bindAddress": Key("host", keyfile.text),
    "listenPort": Key("port", keyfile.integer),
    "haListenPort": Key("ha_port", keyfile.integer),
    "brokerIP1": Key("advertised_host", keyfile.text),
    "brokerIP2": Key("advertised_ha_host", keyfile.text),
    "namesrvAddr": Key("name_servers", _name_servers),
    "registerBrokerTimeoutMills": Key("register_timeout_ms", keyfile.integer),
    "brokerPermission": Key("perm", keyfile.integer),
    "autoCreateTopicEnable": Key("auto_create_topics", keyfile.flag),
    "autoCreateSubscriptionGroup": Key("auto_create_groups", keyfile.flag),
    "defaultTopicQueueNums": Key("default_queues", keyfile.integer),
    "maxTopics": Key("max_topics", keyfile.integer),
    "maxGroups": Key("max_groups", keyfile.integer),
    "maxOffsets": Key("max_offsets", keyfile.integer),
    "slaveReadEnable": Key("slave_read", keyfile.flag),
    "litePullMessageEnable": Key("lite_pull", keyfile.flag),
    "longPollingEnable": Key("long_polling", keyfile.flag),
    "shortPollingTimeMills": Key("short_polling_ms", keyfile.integer),
    "notifyConsumerIdsChangedEnable": Key("notify_ids_changed", keyfile.flag),
    "metricsExporterType": Key("http_enabled", keyfile.prometheus),
    "metricsPromExporterHost": Key("http_host", keyfile.text),
    "metricsPromExporterPort": Key("http_port", keyfile.integer),
}
STORE_KEYS: Mapping[str, Key] = {
    "flushDiskType": Key("sync_flush", _sync_flush),
    "mappedFileSizeCommitLog": Key("commit_log_file_bytes", keyfile.integer),
    "mappedFileSizeConsumeQueue": Key("consume_queue_file_units", _units),
    "maxHashSlotNum": Key("index_slots", keyfile.integer),
    "maxIndexNum": Key("index_entries", keyfile.integer),
    "messageIndexEnable": Key("index", keyfile.flag),
    "flushIntervalCommitLog": Key("flush_interval_ms", keyfile.integer),
    "maxMessageSize": Key("max_message_bytes", keyfile.integer),
    "fileReservedTime": Key("file_reserved_hours", keyfile.integer),
    "deleteWhen": Key("delete_hour", _hour),
    "diskMaxUsedSpaceRatio": Key("disk_delete_ratio", _percent_used(10)),
    "diskSpaceCleanForciblyRatio": Key("disk_clean_ratio", _percent_used(30)),
    "diskSpaceWarningLevelRatio": Key("disk_refuse_ratio", _percent_used(35)),
    "maxTransferBytesOnMessageInMemory": Key("max_bytes_in_memory", keyfile.integer),
    "maxTransferCountOnMessageInMemory": Key("max_count_in_memory", keyfile.integer),
    "maxTransferBytesOnMessageInDisk": Key("max_bytes_on_disk", keyfile.integer),
    "maxTransferCountOnMessageInDisk": Key("max_count_on_disk", keyfile.integer),
    "accessMessageInMemoryMaxRatio": Key("memory_percent", keyfile.integer),
    "maxMsgsNumBatch": Key("max_query_count", keyfile.integer),
    "offsetCheckInSlave": Key("offset_check_in_slave", keyfile.flag),
    "queueEndsMayBeUnknown": Key("ends_may_be_unknown", keyfile.flag),
}
HA_KEYS: Mapping[str, Key] = {
    "haSendHeartbeatInterval": Key("heartbeat_ms", keyfile.integer),
    "haHousekeepingInterval": Key("housekeeping_ms", keyfile.integer),
    "haTransferBatchSize": Key("batch_bytes", keyfile.integer),
    "haMaxGapNotInSync": Key("max_gap_bytes", keyfile.integer),
    "slaveTimeout": Key("slave_timeout_ms", keyfile.integer),
    "syncFlushTimeout": Key("sync_flush_timeout_ms", keyfile.integer),
    "inSyncReplicas": Key("in_sync_replicas", keyfile.integer),
    "slaveOutOfSyncWhenLate": Key("out_of_sync_when_late", keyfile.flag),  # ours only
    "copyWholeLog": Key("copy_whole_log", keyfile.flag),  # ours only
}
REMOTING_KEYS: Mapping[str, Key] = {
    "maxHeldBytes": Key("held_limit_bytes", keyfile.integer),  # ours only
}
NEEDED = ("storePathRootDir", "brokerName")
MUST_BE_FALSE: Mapping[str, str] = {
    "enableControllerMode": "the master is who the settings say, there is no controller",
    "enableDLegerCommitLog": "the log has one copy on a master and one on each slave, no raft group",
    "enableSlaveActingMaster": "a slave takes no writes",
    "duplicationEnable": "it would acknowledge what no slave has",
    "transientStorePoolEnable": "messages would be acknowledged before the file has them",
    "enabledAppendPropCRC": "records have the checksum of their body only",
    "enableLmq": "a message has one queue",
    "enableMultiDispatch": "a message has one queue",
    "rocksdbCQDoubleWriteEnable": "queues are files",
}
SECURITY = re.compile(r"tls.*|acl.*|auth.*|.*[aA]uth(entication|orization).*")


@dataclass(frozen=True)
class Loaded:
    """Settings, and the keys that change nothing."""

    broker: BrokerSettings
    ignored: tuple[str, ...]


def load(path: str | None, overrides: Mapping[str, str]) -> Loaded:
    """The file, if any, with ``overrides`` (``--set``) on top. Raises UsageError, which names the key."""
    values = {} if path is None else keyfile.read_keys(path, TABLE)
    return broker_settings({**values, **overrides})


def broker_settings(values: Mapping[str, str]) -> Loaded:
    """Settings from keys and their text. An empty value counts as absent. Raises UsageError."""
    given = keyfile.given(values)
    _refuse(given)
    known = {*KEYS, *STORE_KEYS, *HA_KEYS, *REMOTING_KEYS, *MUST_BE_FALSE, "storePathCommitLog", "storeType"}
    keyfile.require(NEEDED, given, known)
    fields = _fields(KEYS, given)
    store = _fields(STORE_KEYS, given)
    _make_room(store)
    fields["store"] = keyfile.build(StoreSettings, STORE_KEYS, store)
    fields["ha"] = keyfile.build(HaSettings, HA_KEYS, _fields(HA_KEYS, given))
    fields["remoting"] = keyfile.build(RemotingSettings, REMOTING_KEYS, _fields(REMOTING_KEYS, given))
    settings = keyfile.build(BrokerSettings, KEYS, fields)
    return Loaded(settings, keyfile.unknown((name for name in given if not SECURITY.fullmatch(name)), known))


def _make_room(store: dict[str, Any]) -> None:
    """Disk ratios that are not given make way for those that are: they must rise (delete, clean, refuse)."""
    usual = StoreSettings()
    highest = store.get("disk_refuse_ratio", 100)
    lowest = min(store.get("disk_clean_ratio", highest), highest)
    delete = store.setdefault("disk_delete_ratio", min(usual.disk_delete_ratio, lowest))
    clean = store.setdefault("disk_clean_ratio", min(max(usual.disk_clean_ratio, delete), highest))
    store.setdefault("disk_refuse_ratio", max(usual.disk_refuse_ratio, clean))


def _fields(keys: Mapping[str, Key], given: Mapping[str, str]) -> dict[str, Any]:
    return {key.field: key.parse(name, given[name]) for name, key in keys.items() if name in given}


def _refuse(given: Mapping[str, str]) -> None:
    for name, why in MUST_BE_FALSE.items():
        if name in given and keyfile.flag(name, given[name]):
            raise UsageError(f"{name}=true is not supported: {why}")
    for name, value in given.items():
        if SECURITY.fullmatch(name) and value.lower() != "false":
            raise UsageError(f"{name} is not supported: this broker has neither access control nor TLS")
    if given.get("storeType", "default") != "default":
        raise UsageError("storeType is not supported: queues and messages are files", value=given["storeType"])
    root, log = given.get("storePathRootDir", ""), given.get("storePathCommitLog")
    if log is not None and log.rstrip("/") != f"{root.rstrip('/')}/commitlog":
        raise UsageError("storePathCommitLog is the folder commitlog in storePathRootDir, and no other", value=log)
