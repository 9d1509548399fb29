"""Several brokers on one machine, each a process of a group of its own: which settings each of them has."""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.rocketmq.broker.keys import SCHEMA
from tallystick.rocketmq.broker.settings import FAST_PORT_BELOW
from tallystick.runtime.instance import Pages, require_room

PORTS_EACH = 10  # a broker listens at three: two below the one given, and the one behind it


def broker_instances(texts: Mapping[str, str], count: int) -> tuple[list[dict[str, str]], Pages | None]:
    """Return the settings of each of ``count`` brokers, to be put over those given, and where all are told of.

    Their names end in ``-1``, ``-2``, …: a slave follows the master of the same name. Ports are 10 apart, those of the
    pages of each come behind the port given, which has the pages of all. Each has a folder ``instance-1``,
    ``instance-2``, … in the store's. Raises UsageError.
    """
    settings = SCHEMA.read(texts).settings
    pages = Pages(settings.http_host, settings.http_port) if settings.http_enabled else None
    ports = {"listenPort": [settings.port + PORTS_EACH * number if settings.port else 0 for number in range(count)]}
    ha_port = settings.listen_ha_port
    ports["haListenPort"] = [ha_port + PORTS_EACH * number if ha_port else 0 for number in range(count)]
    if pages is not None:
        ports["metricsPromExporterPort"] = [pages.port + number if pages.port else 0 for number in range(1, count + 1)]
    fast = [port - FAST_PORT_BELOW for port in ports["listenPort"] if port]
    require_room(ports | {"listenPort's second": fast}, pages)
    instances = []
    for number in range(1, count + 1):
        own = {key: str(of_all[number - 1]) for key, of_all in ports.items()}
        own["brokerName"] = f"{settings.name}-{number}"
        own["storePathRootDir"] = f"{settings.store_dir.rstrip('/')}/instance-{number}"
        if "storePathCommitLog" in texts:
            own["storePathCommitLog"] = own["storePathRootDir"] + "/commitlog"
        instances.append(own)
    return instances, pages
