"""What each of several brokers on one machine gets of the settings of all."""

from __future__ import annotations

import pytest

from tallystick.errors import UsageError
from tallystick.rocketmq.broker.instances import broker_instances
from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.runtime.instance import Pages

TEXTS = {"brokerName": "b", "storePathRootDir": "/srv/store", "listenPort": "10911"}


def test_each_has_a_name_ports_and_a_folder() -> None:
    texts = {**TEXTS, "storePathCommitLog": "/srv/store/commitlog", "metricsExporterType": "PROM"}
    instances, pages = broker_instances({**texts, "metricsPromExporterPort": "5557"}, 2)
    assert pages == Pages("127.0.0.1", 5557)
    assert instances == [
        {
            "listenPort": "10911",
            "haListenPort": "10912",
            "metricsPromExporterPort": "5558",
            "brokerName": "b-1",
            "storePathRootDir": "/srv/store/instance-1",
            "storePathCommitLog": "/srv/store/instance-1/commitlog",
        },
        {
            "listenPort": "10921",
            "haListenPort": "10922",
            "metricsPromExporterPort": "5559",
            "brokerName": "b-2",
            "storePathRootDir": "/srv/store/instance-2",
            "storePathCommitLog": "/srv/store/instance-2/commitlog",
        },
    ]
    for own in instances:
        SCHEMA.read({**texts, **own})


def test_a_port_below_that_of_another_is_nobodys_else() -> None:
    texts = {**TEXTS, "metricsExporterType": "PROM", "metricsPromExporterPort": "10908"}
    assert broker_instances(texts, 0)[1] == Pages("127.0.0.1", 10908)
    with pytest.raises(UsageError, match="listenPort's second and metricsPromExporterPort need the same port"):
        broker_instances(texts, 1)


def test_free_ports_stay_free_ones() -> None:
    instances, _ = broker_instances({**TEXTS, "listenPort": "0"}, 2)
    assert [(own["listenPort"], own["haListenPort"]) for own in instances] == [("0", "0"), ("0", "0")]
