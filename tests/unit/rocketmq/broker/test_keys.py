"""A broker's file of settings: the original's keys, ours in TOML, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.rocketmq.broker.role import Role

NEEDED = {"storePathRootDir": "/srv/store", "brokerName": "b0"}
CONF = """
# an original's file
brokerClusterName = c0
brokerName=b0
brokerId=1
brokerRole=SLAVE
flushDiskType=SYNC_FLUSH
namesrvAddr=127.0.0.1:9876;127.0.0.2:9876
listenPort=12911
storePathRootDir=/srv/store/
storePathCommitLog=/srv/store/commitlog
mappedFileSizeConsumeQueue=60000
mappedFileSizeCommitLog=16777216
diskMaxUsedSpaceRatio=99
deleteWhen=04
slaveTimeout=1500
sendMessageThreadPoolNums=4
enableControllerMode=false
aclEnable=false
"""
TOML = """
[broker]
brokerClusterName = "c0"
brokerName = "b0"
brokerId = 1
brokerRole = "SLAVE"
flushDiskType = "SYNC_FLUSH"
namesrvAddr = ["127.0.0.1:9876", "127.0.0.2:9876"]
listenPort = 12911
storePathRootDir = "/srv/store"
mappedFileSizeConsumeQueue = 60000
mappedFileSizeCommitLog = 16777216
diskMaxUsedSpaceRatio = 99
deleteWhen = "04"
slaveTimeout = 1500
sendMessageThreadPoolNums = 4
"""


@pytest.mark.parametrize("perm", ["0", "1", "3", "5", "7", "8", "9", "-2"])
def test_a_permission_that_is_none_is_refused(perm: str) -> None:
    with pytest.raises(UsageError, match=r"brokerPermission is 2 \(write\), 4 \(read\) or 6 \(both\)"):
        SCHEMA.read({**NEEDED, "brokerPermission": perm})


def test_the_originals_file_and_ours_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(CONF)
    (tmp_path / "broker.toml").write_text(TOML)
    theirs, ours = SCHEMA.load(str(tmp_path / "broker.conf"), {}), SCHEMA.load(str(tmp_path / "broker.toml"), {})
    assert theirs == ours
    assert theirs.ignored == ("sendMessageThreadPoolNums",)
    settings = theirs.settings
    assert (settings.role, settings.broker_id, settings.port, settings.listen_ha_port) == (Role.SLAVE, 1, 12911, 12912)
    assert settings.name_servers == ("127.0.0.1:9876", "127.0.0.2:9876")
    assert (settings.store.sync_flush, settings.store.consume_queue_file_units) == (True, 3000)
    assert (settings.store.disk_delete_ratio, settings.store.disk_clean_ratio) == (95, 95)
    assert settings.ha.slave_timeout_ms == 1500
    assert settings.ha_settings(1).sync_flush
    assert settings.ha_settings(1).slave_id == "b0:1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (75, 85, 90)),
        ({"diskMaxUsedSpaceRatio": "92"}, (92, 92, 92)),
        ({"diskSpaceCleanForciblyRatio": "60"}, (60, 60, 90)),
        ({"diskSpaceWarningLevelRatio": "50"}, (50, 50, 50)),
        ({"diskSpaceWarningLevelRatio": "80", "diskMaxUsedSpaceRatio": "40"}, (40, 80, 80)),
        (
            {"diskMaxUsedSpaceRatio": "10", "diskSpaceCleanForciblyRatio": "30", "diskSpaceWarningLevelRatio": "100"},
            (10, 30, 95),
        ),
    ],
)
def test_disk_ratios_that_are_not_given_make_way(given: dict[str, str], expected: tuple[int, int, int]) -> None:
    store = SCHEMA.read({**NEEDED, **given}).settings.store
    assert (store.disk_delete_ratio, store.disk_clean_ratio, store.disk_refuse_ratio) == expected


def test_disk_ratios_that_do_not_rise_are_refused_by_their_names() -> None:
    with pytest.raises(UsageError, match="diskSpaceCleanForciblyRatio"):
        SCHEMA.read({**NEEDED, "diskMaxUsedSpaceRatio": "80", "diskSpaceCleanForciblyRatio": "60"})


def test_overrides_win(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(CONF)
    assert SCHEMA.load(str(tmp_path / "broker.conf"), {"listenPort": "0"}).settings.listen_ha_port == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerRole", "LEADER"), ("flushDiskType", "SOMETIMES"), ("listenPort", "x"), ("listenPort", "2"),
        ("listenPort", "70000"), ("brokerId", "1"), ("slaveReadEnable", "yes"), ("deleteWhen", "04;05"),
        ("brokerName", "../b0"), ("storePathRootDir", "relative"), ("storePathCommitLog", "/a,/b"),
        ("storeType", "defaultRocksDB"), ("aclEnable", "true"), ("tlsEnable", "true"),
        ("authenticationWhitelist", "10"),
        ("brokerIP1", "host.example"), ("defaultTopicQueueNums", "0"), ("metricsExporterType", "OTLP_GRPC"),
        ("haTransferBatchSize", "99999999"), ("namesrvAddr", "foo"), ("namesrvAddr", "h:9876;h"),
        ("mappedFileSizeCommitLog", "100"), ("mappedFileSizeConsumeQueue", "19"), ("diskMaxUsedSpaceRatio", "5"),
        ("diskSpaceCleanForciblyRatio", "29"), ("diskSpaceWarningLevelRatio", "34"), ("deleteWhen", "25"),
        *((name, "true") for name in SCHEMA.fixed),
    ],
)  # fmt: skip
def test_a_bad_or_unsupported_value_is_refused_by_its_name(key: str, value: str) -> None:
    with pytest.raises(UsageError) as raised:
        SCHEMA.read({**NEEDED, key: value})
    assert key in str(raised.value)


@pytest.mark.parametrize("every", ["0.0.0.0", "::"])
def test_nobody_is_told_that_a_broker_is_at_every_interface(every: str) -> None:
    """It is the address of whoever is told: clients and slaves on other machines connected to themselves."""
    for given in ({}, {"brokerIP1": every}, {"brokerIP2": "10.0.0.1"}):
        with pytest.raises(UsageError, match="brokerIP1 must be set") as raised:
            SCHEMA.read({**NEEDED, "bindAddress": every, "allowAnonymous": "true", **given})
        assert every in str(raised.value)
    with pytest.raises(UsageError, match="brokerIP2 must be set"):
        SCHEMA.read({**NEEDED, "brokerIP2": every})
    told = SCHEMA.read({**NEEDED, "bindAddress": every, "brokerIP1": "10.0.0.1", "allowAnonymous": "true"}).settings
    assert (told.host, told.client_host, told.slave_host) == (every, "10.0.0.1", "10.0.0.1")


@pytest.mark.parametrize("key", sorted(SCHEMA.keys))
def test_a_number_below_all_is_refused_by_its_key(key: str) -> None:
    try:
        number = isinstance(value := SCHEMA.keys[key].parse(key, "50"), int) and value not in (True, False)
    except UsageError:
        number = key == "deleteWhen"
    if number:
        with pytest.raises(UsageError, match=f"^{key} "):
            SCHEMA.read({**NEEDED, key: "-1"})


@pytest.mark.parametrize("missing", sorted(NEEDED))
def test_what_is_needed_is_asked_for(missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        SCHEMA.read({key: value for key, value in NEEDED.items() if key != missing})


def test_no_key_is_in_two_tables() -> None:
    parts = (SCHEMA.whole, *SCHEMA.parts.values())
    names = [*(name for part in parts for name in part.keys), *SCHEMA.fixed]
    assert len(set(names)) == len(names)


def test_a_slave_needs_an_id_and_a_master_has_none() -> None:
    with pytest.raises(UsageError, match="brokerId"):
        SCHEMA.read({**NEEDED, "brokerRole": "SLAVE"})
    assert SCHEMA.read({**NEEDED, "brokerRole": "slave", "brokerId": "2"}).settings.role is Role.SLAVE


@pytest.mark.parametrize("port", ["10911", "10909"])
def test_the_port_for_slaves_is_not_one_of_those_for_clients(port: str) -> None:
    with pytest.raises(UsageError, match="haListenPort is a port of its own: 10911 and 10909"):
        SCHEMA.read({"brokerName": "b", "storePathRootDir": "/store", "listenPort": "10911", "haListenPort": port})


@pytest.mark.rule("N1")
def test_n1_metrics_beyond_this_machine_are_for_who_has_a_certificate_unless_that_is_written() -> None:
    given = {**NEEDED, "metricsExporterType": "PROM", "metricsPromExporterHost": "10.0.0.1"}
    tls = {"tls.server.certPath": "/c", "tls.server.keyPath": "/k", "tls.server.trustCertPath": "/t"}
    asks = {**tls, "tls.server.need.client.auth": "require"}
    for open_ in ({}, {"authenticationEnabled": "true"}, tls, {**asks, "tls.server.mode": "permissive"}):
        with pytest.raises(UsageError, match="metricsAllowAnonymous=true"):
            SCHEMA.read({**given, **open_})
    for closed in (asks, {"metricsAllowAnonymous": "true"}, {"allowAnonymous": "true"}):
        assert SCHEMA.read({**given, **closed}).settings.http_enabled
    assert SCHEMA.read({**given, "metricsExporterType": "DISABLE"})


@pytest.mark.rule("N1")
@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "broker.example"])
def test_n1_beyond_this_machine_a_broker_asks_for_keys_or_says_that_it_does_not(host: str) -> None:
    given = {**NEEDED, "bindAddress": host, "brokerIP1": "10.0.0.1"}
    with pytest.raises(UsageError, match="allowAnonymous=true"):
        SCHEMA.read(given)
    assert SCHEMA.read({**given, "allowAnonymous": "true"}).settings.access.anonymous
    assert SCHEMA.read({**given, "authenticationEnabled": "true"}).settings.access.authenticates
    for near in ("127.0.0.1", "127.8.0.1", "::1"):
        SCHEMA.read({**NEEDED, "bindAddress": near, "brokerIP1": "127.0.0.1"})
