"""docs/metrics.md as the servers' collectors make it: ``python tests/support/metrics_page.py`` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tallystick.runtime.machine import this_machine

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.admin_desk import Desk
from tallystick.bookkeeper.bookie import metrics as bookie
from tallystick.bookkeeper.bookie.storage import StorageStats
from tallystick.bookkeeper.ledger import metrics as client
from tallystick.bookkeeper.ledger.counts import ClientCounts
from tallystick.rocketmq.broker import metrics as broker
from tallystick.rocketmq.broker.access.metrics import AccessCollector, AccessCounts
from tallystick.rocketmq.broker.dashboard_metrics import DashboardCollector
from tallystick.rocketmq.broker.locks import QueueLocksCore
from tallystick.rocketmq.nameserver import metrics as name_server
from tallystick.rocketmq.nameserver.routes import RoutesCore
from tallystick.rocketmq.remoting.memory import Memory
from tallystick.rocketmq.remoting.server import RemotingServer, RequestReceiver
from tallystick.rocketmq.remoting.settings import RemotingSettings
from tallystick.runtime.clock import SystemClock
from tallystick.runtime.disk import Usage
from tallystick.runtime.events import Events
from tallystick.runtime.health import process_registry
from tallystick.runtime.instances import Instance, InstancesCollector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from tallystick.bookkeeper.stream.client import BookKeeper

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD = """# Metrics

What `/metrics` shows, in Prometheus' text format. A setting turns it on: `httpServerEnabled` of a bookie,
`metricsExporterType=PROM` of a broker or name server ([configuration](configuration.md)). Each server shows its
process as well (`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and so on).
[What to alert on](operations.md#what-to-alert-on). Names with capitals and those of `rocketmq_…` are the originals'.
`tests/support/metrics_page.py` makes this page from the code.
"""


class _Client:
    """As much of a ledger client as its metrics look at."""

    def __init__(self) -> None:
        self.degraded_total = 0
        self.context = SimpleNamespace(bookies=SimpleNamespace(counts=ClientCounts()))

    def degraded(self) -> dict[int, frozenset[str]]:
        return {}


def _bookie() -> CollectorRegistry:
    usage = {"FOLDER": Usage(2, 1)}
    view = bookie.View(
        bookie.Counts(), lambda: StorageStats(0, 0, 0, 0, 0, 0, 0), lambda: True, lambda: True, lambda: 0, lambda: usage
    )
    return bookie.registry(view)


def _broker() -> CollectorRegistry:
    counts, clock = broker.BrokerCounts(), SystemClock()
    view = broker.BrokerReadings(
        counts=counts,
        log_range=lambda: (0, 0, 0),
        dispatched=lambda: 0,
        writeable=lambda: True,
        disk_used_percent=lambda: 0.0,
        connections=lambda: 0,
        held_pulls=lambda: 0,
        locks=QueueLocksCore(),
        malformed=lambda: 0,
        sinks=lambda: (0, 0),
        memory=Memory(clock, Events(), 1, 1.0),
        slaves=list,
        metadata_age_s=lambda: 0.0,
        has_rival=lambda: False,
        names=lambda: {"broker": "broker-a", "id": "0", "role": "SYNC_MASTER"},
    )
    return broker.registry(view, DashboardCollector(Desk().parts, counts), AccessCollector(AccessCounts()))


def _name_server() -> CollectorRegistry:
    server = RemotingServer(this_machine(), cast("RequestReceiver", None), RemotingSettings())
    return name_server.registry(RoutesCore(), server, {}, lambda: 0)


def _client() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    found = CollectorRegistry()
    client.register(cast("BookKeeper", _Client()), found)
    return found


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def rows(registry: CollectorRegistry) -> Iterable[str]:
    for family in sorted(registry.collect(), key=lambda one: (one.name.startswith("rocketmq_"), one.name.lower())):
        if not family.name.startswith("process"):
            shown = dict.fromkeys(sample.name for sample in family.samples)
            names = ", ".join(f"`{name}`" for name in shown or [_name(family)])
            yield f"| {names} | {family.documentation} |"


def page() -> str:
    lines = [HEAD]
    for title, registry in (
        ("A bookie", _bookie()),
        ("A broker", _broker()),
        ("A name server", _name_server()),
        ("Several servers as one (`--instances`)", process_registry(InstancesCollector([Instance(1, ())]))),
        ("A ledger client, where its program asks for it", _client()),
    ):
        lines += [f"## {title}", "", "| name | meaning |", "|---|---|", *rows(registry), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
