"""A name server's settings from both kinds of files; nothing is ignored in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.nameserver.keys import KEYS, SCHEMA
from tallystick.rocketmq.nameserver.settings import NameServerSettings
from tallystick.runtime.keyfile import parse_properties

CONF = """
# as an original one has it
listenPort=9877
bindAddress=127.0.0.2
scanNotActiveBrokerInterval=7000
waitSecondsForService=30
needWaitForService=true
kvConfigPath=/srv/kvConfig.json
serverWorkerThreads=8
"""
TOML = """
[nameserver]
listenPort = 9877
bindAddress = "127.0.0.2"
scanNotActiveBrokerInterval = 7000
waitSecondsForService = 30
needWaitForService = true
kvConfigPath = "/srv/kvConfig.json"
serverWorkerThreads = 8
"""
MEANT = NameServerSettings(
    "127.0.0.2", 9877, 7.0, kv_config_path="/srv/kvConfig.json", wait_for_service=True, wait_for_service_s=30.0
)


@pytest.mark.parametrize(("name", "text"), [("namesrv.conf", CONF), ("n.toml", TOML), ("n.txt", TOML)])
def test_both_kinds_of_files_say_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    loaded = SCHEMA.load(str(tmp_path / name), {})
    assert loaded.settings == MEANT
    assert loaded.ignored == ("serverWorkerThreads",)
    assert SCHEMA.load(str(tmp_path / name), {"listenPort": "0"}).settings.port == 0


def test_without_a_file_everything_has_its_default() -> None:
    assert SCHEMA.load(None, {}).settings == NameServerSettings()
    assert SCHEMA.read({"kvConfigPath": " "}).settings == NameServerSettings()


@pytest.mark.parametrize("key", ["tlsEnable", *SCHEMA.fixed])
def test_what_it_lacks_is_refused_by_name(key: str) -> None:
    with pytest.raises(UsageError, match=key):
        SCHEMA.read({key: "true"})
    assert SCHEMA.read({key: "false"}).ignored == ()


def test_a_value_that_is_none_is_named() -> None:
    for key in SCHEMA.keys:
        if key not in ("bindAddress", "metricsPromExporterHost") and not key.endswith(("Path", "File")):
            with pytest.raises(UsageError, match=key):
                SCHEMA.read({key: "x"})


def test_settings_as_the_text_of_a_file() -> None:
    text = SCHEMA.text(MEANT)
    assert "listenPort=9877\n" in text
    assert "needWaitForService=true\n" in text
    assert SCHEMA.read(parse_properties(text)).settings == MEANT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "99999999"),
        ("metricsPromExporterPort", "-1"),
        ("scanNotActiveBrokerInterval", "0"),
        ("waitSecondsForService", "-1"),
    ],
)
def test_a_bad_value_is_refused_by_its_key(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"^{key} must"):
        SCHEMA.read({key: value})
    with pytest.raises(UsageError, match=f"^{key} must"):
        KEYS.change(NameServerSettings(), {key: value})


@pytest.mark.rule("N1")
def test_n1_metrics_beyond_this_machine_are_for_who_has_a_certificate_unless_that_is_written() -> None:
    given = {"metricsExporterType": "PROM", "metricsPromExporterHost": "0.0.0.0"}
    with pytest.raises(UsageError, match="metricsAllowAnonymous=true"):
        SCHEMA.read(given)
    assert SCHEMA.read({**given, "metricsAllowAnonymous": "true"}).settings.http_enabled


@pytest.mark.rule("N1")
def test_n1_beyond_this_machine_a_name_server_says_that_it_asks_nobody_who_he_is() -> None:
    for host in ("10.0.0.1", "0.0.0.0", "::"):
        with pytest.raises(UsageError, match="allowAnonymous=true"):
            SCHEMA.read({"bindAddress": host})
        assert SCHEMA.read({"bindAddress": host, "allowAnonymous": "true"}).settings.bind_host == host
