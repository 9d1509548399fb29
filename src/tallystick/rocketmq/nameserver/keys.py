"""A name server's settings from keys: those of the original's ``namesrv.conf``, or a table ``[nameserver]`` of TOML.

A key that changes what a name server promises and is not supported is refused by name; all others that are not ours are
named in one warning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.runtime import keyfile
from tallystick.runtime.keyfile import Key

TABLE = "nameserver"


def _whole_seconds(key: str, value: str) -> float:
    return float(keyfile.integer(key, value))


def _absolute(key: str, value: str) -> str:
    if not os.path.isabs(value):
        raise UsageError(f"{key} is an absolute path", value=value)
    return value


KEYS: Mapping[str, Key] = {
    "bindAddress": Key("bind_host", keyfile.text),
    "listenPort": Key("port", keyfile.integer),
    "kvConfigPath": Key("kv_config_path", _absolute),
    "metricsExporterType": Key("http_enabled", keyfile.prometheus),
    "metricsPromExporterHost": Key("http_host", keyfile.text),
    "metricsPromExporterPort": Key("http_port", keyfile.integer),
    "scanNotActiveBrokerInterval": Key("scan_interval_s", keyfile.seconds),
    "needWaitForService": Key("wait_for_service", keyfile.flag),
    "waitSecondsForService": Key("wait_for_service_s", _whole_seconds),
    "deleteTopicWithBrokerRegistration": Key("delete_topic_with_registration", keyfile.flag),
    "supportActingMaster": Key("support_acting_master", keyfile.flag),
    "orderMessageEnable": Key("order_message", keyfile.flag),
    "returnOrderTopicConfigToBroker": Key("return_order_topics", keyfile.flag),
    "enableTopicList": Key("list_topics", keyfile.flag),
    "enableAllTopicList": Key("list_all_topics", keyfile.flag),
}
MUST_BE_FALSE: Mapping[str, str] = {
    "enableControllerInNamesrv": "who is a master the brokers' settings say, there is no controller",
    "clusterTest": "routes that it does not know are nowhere else",
}
SECURITY = re.compile(r"tls.*")


@dataclass(frozen=True)
class Loaded:
    """Settings, and the keys that change nothing."""

    name_server: NameServerSettings
    ignored: tuple[str, ...]


def text_of(settings: NameServerSettings) -> str:
    """The keys of a file that would give these settings, one a line."""
    found = []
    for name in sorted(KEYS):
        value = getattr(settings, KEYS[name].field)
        if name == "scanNotActiveBrokerInterval":
            value = int(value * 1000)
        elif name == "metricsExporterType":
            value = "PROM" if value else "DISABLE"
        elif isinstance(value, float):
            value = int(value)
        found.append(f"{name}={str(value).lower() if isinstance(value, bool) else value}\n")
    return "".join(found)


def changed(settings: NameServerSettings, values: Mapping[str, str]) -> NameServerSettings:
    """With other values for some keys of ``KEYS``. Raises UsageError."""
    fields = {KEYS[name].field: KEYS[name].parse(name, value) for name, value in values.items()}
    return keyfile.build(partial(replace, settings), KEYS, fields)


def load(path: str | None, overrides: Mapping[str, str]) -> Loaded:
    """The file, if any, with ``overrides`` (``--set``) on top. Raises UsageError, which names the key."""
    values = {} if path is None else keyfile.read_keys(path, TABLE)
    return name_server_settings({**values, **overrides})


def name_server_settings(values: Mapping[str, str]) -> Loaded:
    """Settings from keys and their text. An empty value counts as absent. Raises UsageError."""
    given = keyfile.given(values)
    for name, why in MUST_BE_FALSE.items():
        if name in given and keyfile.flag(name, given[name]):
            raise UsageError(f"{name}=true is not supported: {why}")
    for name, value in given.items():
        if SECURITY.fullmatch(name) and value.lower() != "false":
            raise UsageError(f"{name} is not supported: this name server has no TLS")
    fields = {key.field: key.parse(name, given[name]) for name, key in KEYS.items() if name in given}
    ignored = keyfile.unknown((name for name in given if not SECURITY.fullmatch(name)), {*KEYS, *MUST_BE_FALSE})
    return Loaded(keyfile.build(NameServerSettings, KEYS, fields), ignored)
