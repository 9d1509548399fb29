"""A name server's settings from keys: those of the original's ``namesrv.conf``, or a table ``[nameserver]`` of TOML."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.rocketmq.remoting import tls
from tallystick.runtime import keyfile
from tallystick.runtime.network import refuse_readers_of, refuse_strangers
from tallystick.runtime.schema import Fixed, Key, Part, Schema, exporter, milliseconds


def _whole_seconds(key: str, value: str) -> float:
    return float(keyfile.integer(key, value))


def _absolute(key: str, value: str) -> str:
    if not os.path.isabs(value):
        raise UsageError(f"{key} is an absolute path", value=value)
    return value


def _check(texts: Mapping[str, str]) -> None:
    refuse_strangers(texts, asks=bool(texts.get("usersFile")), remedy="name a usersFile, or ")
    refuse_readers_of(texts)


KEYS = Part(
    NameServerSettings,
    {
        "bindAddress": Key("bind_host", keyfile.text),
        "listenPort": Key("port", keyfile.integer),
        "kvConfigPath": Key("kv_config_path", _absolute),
        "metricsExporterType": exporter("http_enabled"),
        "metricsPromExporterHost": Key("http_host", keyfile.text),
        "metricsPromExporterPort": Key("http_port", keyfile.integer),
        "scanNotActiveBrokerInterval": milliseconds("scan_interval_s"),
        "needWaitForService": Key("wait_for_service", keyfile.flag),
        "waitSecondsForService": Key("wait_for_service_s", _whole_seconds),
        "deleteTopicWithBrokerRegistration": Key("delete_topic_with_registration", keyfile.flag),
        "supportActingMaster": Key("support_acting_master", keyfile.flag),
        "orderMessageEnable": Key("order_message", keyfile.flag),
        "returnOrderTopicConfigToBroker": Key("return_order_topics", keyfile.flag),
        "usersFile": Key("users_file", _absolute),  # ours, as the next one
        "allowAnonymous": Key("anonymous", keyfile.flag),
        "enableTopicList": Key("list_topics", keyfile.flag),
        "enableAllTopicList": Key("list_all_topics", keyfile.flag),
    },
)
FIXED = {
    "enableControllerInNamesrv": Fixed(False, "who is a master the brokers' settings say, there is no controller"),
    "clusterTest": Fixed(False, "routes that it does not know are nowhere else"),
}
SCHEMA = Schema(
    "nameserver",
    KEYS,
    re.compile(r"tls.*"),
    "it is none of the TLS that this name server has",
    parts={"tls": tls.KEYS},
    fixed=FIXED,
    checked=("metricsAllowAnonymous",),
    check=_check,
)
