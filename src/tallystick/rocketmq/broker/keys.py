"""A broker's settings from keys: those of the original's ``broker.conf``, in its file or in a TOML table ``[broker]``.

Those of the store, of replication and of remoting are in these packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.access import settings as access
from tallystick.rocketmq.broker.role import Role
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.ha import settings as ha
from tallystick.rocketmq.remoting import settings as remoting
from tallystick.rocketmq.remoting import tls
from tallystick.rocketmq.remoting.client import addresses_in
from tallystick.rocketmq.store import settings as store
from tallystick.runtime import keyfile
from tallystick.runtime.network import refuse_readers_of, refuse_strangers
from tallystick.runtime.schema import Fixed, Key, Part, Schema, exporter


def _role(key: str, value: str) -> Role:
    try:
        return Role(value.upper())
    except ValueError:
        raise UsageError(f"{key} is ASYNC_MASTER, SYNC_MASTER or SLAVE", value=value) from None


def _name_servers(key: str, value: str) -> tuple[str, ...]:
    try:
        return addresses_in(value)
    except UsageError as error:
        raise UsageError(f"{key} is host:port of each name server", value=value) from error


def _folder(key: str, value: str) -> str:
    return value.rstrip("/") or "/"


def _check(texts: Mapping[str, str]) -> None:
    asks = keyfile.flag("authenticationEnabled", texts.get("authenticationEnabled", "false"))
    refuse_strangers(texts, asks=asks, remedy="set authenticationEnabled=true, or ")
    refuse_readers_of(texts)
    access.check_providers(texts)
    _check_store(texts)


def _check_store(texts: Mapping[str, str]) -> None:
    if texts.get("storeType", "default") != "default":
        raise UsageError("storeType is not supported: queues and messages are files", value=texts["storeType"])
    root, log = texts.get("storePathRootDir", ""), texts.get("storePathCommitLog")
    if log is not None and log.rstrip("/") != f"{root.rstrip('/')}/commitlog":
        raise UsageError("storePathCommitLog is the folder commitlog in storePathRootDir, and no other", value=log)


KEYS = Part(
    BrokerSettings,
    {
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
        "metricsExporterType": exporter("http_enabled"),
        "metricsPromExporterHost": Key("http_host", keyfile.text),
        "metricsPromExporterPort": Key("http_port", keyfile.integer),
    },
)
FIXED = {
    "enableControllerMode": Fixed(False, "the master is who the settings say, there is no controller"),
    "enableDLegerCommitLog": Fixed(False, "the log has one copy on a master and one on each slave, no raft group"),
    "enableSlaveActingMaster": Fixed(False, "a slave takes no writes"),
    "duplicationEnable": Fixed(False, "it would acknowledge what no slave has"),
    "transientStorePoolEnable": Fixed(False, "messages would be acknowledged before the file has them"),
    "enabledAppendPropCRC": Fixed(False, "records have the checksum of their body only"),
    "enableLmq": Fixed(False, "a message has one queue"),
    "enableMultiDispatch": Fixed(False, "a message has one queue"),
    "rocksdbCQDoubleWriteEnable": Fixed(False, "queues are files"),
}
SCHEMA = Schema(
    "broker",
    KEYS,
    re.compile(r"tls.*|acl.*|auth.*|.*[aA]uth(entication|orization).*"),
    "it is none of the TLS and access control that this broker has",
    parts={"access": access.KEYS, "store": store.KEYS, "ha": ha.KEYS, "remoting": remoting.KEYS, "tls": tls.KEYS},
    needed=("storePathRootDir", "brokerName"),
    fixed=FIXED,
    checked=("storePathCommitLog", "storeType", "metricsAllowAnonymous", *access.CHECKED),
    check=_check,
)
